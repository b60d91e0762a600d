"""`benchmarks.map_training`: what counts, and where kernels belong."""

from pathlib import Path

import pytest

from benchmarks import map_training
from tests.training.test_online_dagger import make_options


@pytest.mark.long
def test_rows_after_the_warm_up_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babyai.training.online_dagger.ROW_UPDATES", 3)
    monkeypatch.setattr(map_training, "REPETITIONS", 2)
    result = map_training.measure(make_options(out=str(tmp_path / "run"), expert_until=0.0), warm_up=1, rows=3)
    assert len(result["rows"]) == 3 and result["frames_per_second"] == sorted(result["rows"])[1]
    assert set(result["ms"]) == {"update", "gradient step alone", "step of all worlds alone", "of it on the CPU"}
    assert all(duration > 0 for duration in result["ms"].values())


def test_kernels_have_purposes() -> None:
    names = {
        "_backward": "attention",
        "triton_poi_fused_gelu_gelu_backward_5": "GELU",
        "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_2": "layer normalization, residuals",
        "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNN": "matrix products",
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float>": "embedding gradients",
        "Memset (Unknown)": "others",
    }
    assert {name: map_training.purpose_of(name) for name in names} == names
