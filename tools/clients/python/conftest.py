import pytest

import served


@pytest.fixture(scope="session")
def url():
    with served.serve() as address:
        yield address


@pytest.fixture(scope="session")
def client(url):
    return served.openai_client(url)


@pytest.fixture(scope="session")
def claude(url):
    return served.anthropic_client(url)
