"""A store on object storage: a real S3 server on loopback, where moto and s3fs are installed (make test-long)."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from fakes import Streaming, responses

from rmlab.scoring import merge, score
from rmlab.store import Store

ABSENT = find_spec("moto") is None or find_spec("s3fs") is None
pytestmark = [pytest.mark.long, pytest.mark.skipif(ABSENT, reason="needs moto[server] and s3fs: make test-long")]

SHARD = """
import sys
from fakes import Streaming, responses
from rmlab.scoring import score
score(responses(40), Streaming(), store=sys.argv[1], shard=sys.argv[2])
"""


@pytest.fixture
def bucket(monkeypatch):
    """The address of an empty bucket; the server and the keys to it are in the environment, as a cluster has them."""
    import fsspec
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.filesystem("s3").mkdir("lab")
    yield "s3://lab/scores"
    fsspec.filesystem("s3").clear_instance_cache()
    server.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_shards_share_a_bucket(bucket, tmp_path):
    calm = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    shards = [
        subprocess.Popen(
            [sys.executable, "-c", SHARD, bucket, f"{part}/4"], env=calm, stderr=subprocess.PIPE, text=True
        )
        for part in range(1, 5)
    ]
    for shard in shards:
        assert shard.wait() == 0, shard.stderr.read()
        shard.stderr.close()
    frame, rest = responses(40), Streaming()
    found = score(frame, rest, store=bucket)
    assert rest.forwarded == [], "the four parts are all there is"
    np.testing.assert_array_equal(found["score"], score(frame, Streaming())["score"])
    assert Store(bucket).fingerprints() == ["fake-1"]
    assert b"fake" in Store(bucket).read_table("fake.fake.csv")
    assert merge(bucket, tmp_path / "here")["added"].tolist() == [240]
    assert merge(tmp_path / "here", f"{bucket}-copy")["added"].tolist() == [240]
