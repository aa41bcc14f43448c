"""The networks that train_ddp.py trains, by torch alone: ResNet, DenseNet, VGG for images of
3 x 224 x 224, and a 3-D convolution network of CosmoFlow's shape for volumes of 4 x 128^3.

The first four have as many parameters as torchvision's (97, 230, 76 and 528 MiB in float32).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 next to the identity, or next to a 1 x 1 where shapes change."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.path = nn.Sequential(
            convolution(inputs, width, 1),
            nn.ReLU(inplace=True),
            convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            convolution(width, outputs, 1),
        )
        same = inputs == outputs and stride == 1
        self.beside = nn.Identity() if same else convolution(inputs, outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        return self.relu(self.path(images) + self.beside(images))


def resnet(blocks: Sequence[int], classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = [
        convolution(3, 64, 7, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    inputs = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(inputs, width, stride))
            inputs = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*layers)


class Dense(nn.Module):
    """Adds ``growth`` channels to those that it gets."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([images, self.path(images)], 1)


def densenet(blocks: Sequence[int], growth: int = 32, classes: int = 1000) -> nn.Module:
    channels = 2 * growth
    layers: list[nn.Module] = [
        convolution(3, channels, 7, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    for stage, count in enumerate(blocks):
        for _ in range(count):
            layers.append(Dense(channels, growth))
            channels += growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
        if stage < len(blocks) - 1:
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers)


def vgg16(classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = []
    inputs = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for in_width, out_width in ((512 * 49, 4096), (4096, 4096)):
        layers += [nn.Linear(in_width, out_width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(4096, classes))


def cosmoflow(outputs: int = 4) -> nn.Module:
    """Five 3-D convolutions, each with half the edge and twice the channels, then three layers."""
    layers: list[nn.Module] = []
    inputs = 4
    for width in (32, 64, 128, 256, 512):
        layers += [nn.Conv3d(inputs, width, 3, padding=1), nn.LeakyReLU(), nn.MaxPool3d(2)]
        inputs = width
    layers.append(nn.Flatten())
    for in_width, out_width in ((512 * 4**3, 128), (128, 64)):
        layers += [nn.Linear(in_width, out_width), nn.LeakyReLU()]
    return nn.Sequential(*layers, nn.Linear(64, outputs))


@dataclasses.dataclass(frozen=True)
class Task:
    """A network, and what it is trained on."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """Shape of one sample."""
    classes: int = 1000
    """0: it learns numbers."""

    def samples(self, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Random samples, with the expected answers of the network."""
        samples = torch.randn(batch, *self.shape, device=device)
        if self.classes:
            return samples, torch.randint(self.classes, (batch,), device=device)
        return samples, torch.rand(batch, 4, device=device)

    def loss(self, outputs: Tensor, expected: Tensor) -> Tensor:
        if self.classes:
            return nn.functional.cross_entropy(outputs, expected)
        return nn.functional.mse_loss(outputs, expected)


_IMAGE = (3, 224, 224)

TASKS = {
    "resnet50": Task(lambda: resnet((3, 4, 6, 3)), _IMAGE),
    "resnet152": Task(lambda: resnet((3, 8, 36, 3)), _IMAGE),
    "densenet201": Task(lambda: densenet((6, 12, 48, 32)), _IMAGE),
    "vgg16": Task(vgg16, _IMAGE),
    "cosmoflow": Task(cosmoflow, (4, 128, 128, 128), classes=0),
}
