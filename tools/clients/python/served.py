"""Servers of the demo model, and clients whose every answer is checked against the published schemas."""

import contextlib
import json
import os
import subprocess
import urllib.request

import anthropic
import openai

import published

BINARY = os.environ["CEDRUN"]
MODEL = "cedrun-demo"


@contextlib.contextmanager
def serve(*flags, key=None):
    """A server on a free port; the value is its address."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CEDRUN_")}
    if key:
        env["CEDRUN_API_KEY"] = key
    command = [BINARY, "serve", "--port", "0", "--log-level", "warn", "--drain-time", "2s", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        if process.wait(timeout=20) != 0:
            raise AssertionError(f"the server left with status {process.returncode}")


def openai_client(url, key="none", **more):
    http = openai.DefaultHttpxClient(transport=published.Checked())
    return openai.OpenAI(base_url=url + "/v1", api_key=key, http_client=http, timeout=60, **{"max_retries": 0, **more})


def anthropic_client(url, key="none", **more):
    http = anthropic.DefaultHttpxClient(transport=published.Checked())
    return anthropic.Anthropic(base_url=url, api_key=key, http_client=http, timeout=60, **{"max_retries": 0, **more})


def get(url, key=None):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=10) as r:
        return r.read().decode()


def load(url):
    """Requests that run, and that wait."""
    o = json.loads(get(url + "/ready"))
    return o["running"], o["waiting"]


def metric(url, name):
    """The sum of a metric over its labels."""
    lines = get(url + "/metrics").splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)
