"""Detectors and segmenters."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers as hf
from transformers_zoo import Case, Hidden


def spread(model: torch.nn.Module) -> torch.nn.Module:
    """The model with weights that keep the size of what passes through.

    Some begin so near to zero that any result would be within the limits, or all
    scores the same, of which no choice is right.
    """
    for parameter in model.parameters():
        if parameter.dim() > 1:
            deviation = parameter[0].numel() ** -0.5
            torch.nn.init.normal_(parameter, std=deviation)
    return model


def seen(model: torch.nn.Module, output: str) -> Case:
    return Case(
        Hidden(spread(model), "pixel_values", output), (torch.randn(1, 3, 64, 64),)
    )


def stages() -> hf.SwinConfig:
    return hf.SwinConfig(
        image_size=64, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2],
        window_size=2, out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip


def detr() -> Case:
    config = hf.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=hf.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic",
            out_features=["stage2"],
        ),
        d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48,
        num_queries=7, num_labels=5,
    )  # fmt: skip
    return seen(hf.DetrForObjectDetection(config), "pred_boxes")


def rt_detr() -> Case:
    backbone = hf.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1],
        layer_type="basic", out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = hf.RTDetrConfig(
        backbone_config=backbone, encoder_hidden_dim=32,
        encoder_in_channels=[16, 16, 32], feat_strides=[8, 16, 32], encoder_layers=1,
        encoder_ffn_dim=48, encoder_attention_heads=2, d_model=32, num_queries=10,
        decoder_in_channels=[32, 32, 32], decoder_ffn_dim=48, decoder_layers=1,
        decoder_attention_heads=2, decoder_n_points=2, num_denoising=0, num_labels=5,
    )  # fmt: skip
    return seen(hf.RTDetrForObjectDetection(config), "logits")


def maskformer() -> Case:
    decoder = hf.DetrConfig(
        d_model=32, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=48,
        num_queries=7, use_timm_backbone=False, backbone=None,
        backbone_config=hf.ResNetConfig(),
    )  # fmt: skip
    config = hf.MaskFormerConfig(
        backbone_config=stages(), decoder_config=decoder, fpn_feature_size=32,
        mask_feature_size=16, num_labels=5,
    )  # fmt: skip
    model = hf.MaskFormerForInstanceSegmentation(config)
    return seen(model, "masks_queries_logits")


def mask2former() -> Case:
    config = hf.Mask2FormerConfig(
        backbone_config=stages(), feature_size=32, mask_feature_size=32,
        hidden_dim=32, encoder_feedforward_dim=48, encoder_layers=1, decoder_layers=2,
        num_attention_heads=2, dim_feedforward=48, num_queries=7, num_labels=5,
    )  # fmt: skip
    model = hf.Mask2FormerForUniversalSegmentation(config)
    return seen(model, "masks_queries_logits")


def sam() -> Case:
    vision = {
        "hidden_size": 32, "output_channels": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 64, "patch_size": 8, "mlp_dim": 48,
        "window_size": 4, "global_attn_indexes": [1], "num_pos_feats": 16,
    }  # fmt: skip
    prompts = {
        "hidden_size": 32, "image_size": 64, "patch_size": 8, "mask_input_channels": 4
    }  # fmt: skip
    masks = {
        "hidden_size": 32, "mlp_dim": 48, "num_hidden_layers": 1,
        "num_attention_heads": 2, "iou_head_hidden_dim": 32,
    }  # fmt: skip
    config = hf.SamConfig(
        vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=masks
    )
    module = Hidden(
        spread(hf.SamModel(config)), "pixel_values input_points", "pred_masks"
    )
    return Case(module, (torch.randn(1, 3, 64, 64), torch.rand(1, 1, 2, 2) * 64))


ZOO: dict[str, Callable[[], Case]] = {
    "DETR": detr,
    "RT-DETR": rt_detr,
    "MaskFormer": maskformer,
    "SAM": sam,
}
LONG: dict[str, Callable[[], Case]] = {
    "Mask2Former": mask2former,
}
