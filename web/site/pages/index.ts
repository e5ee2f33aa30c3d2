/** The first page says at once whether the models will run here. */

import { byId } from '../shared/dom';
import { findAdapter, showNoGpu } from '../shared/missing';
import { keepForOffline } from '../shared/offline';

void keepForOffline();
if (!(await findAdapter())) showNoGpu(byId('missing'));
