"""One process, many users: a session for each request over one shared client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc

import deadstop
import pytest

from conftest import ask


def test_a_session_for_each_request_over_one_shared_client(async_client):
    original = async_client
    client = deadstop.share(original)
    assert type(client) is type(original) and client is not original

    async def handle(n):
        limit = 1 if n % 2 else 30
        async with deadstop.session(agent="support", session=f"r{n}", max_model_calls=limit) as session:
            assert deadstop.current_session() is session
            answered = 0
            try:
                for _ in range(3):
                    await ask(client)
                    answered += 1
            except deadstop.DeadstopKilled as killed:
                assert killed.context.who == f"support/r{n}"
            # A client that lost its connection tries again, which is one more call.
            assert session.get_state().model_calls >= answered and (n % 2 or answered == 3)
            return session

    async def main():
        return await asyncio.gather(*(handle(n) for n in range(40)))

    sessions = asyncio.run(main())
    assert [session.killed for session in sessions] == [bool(n % 2) for n in range(40)]
    assert deadstop.current_session() is None
    assert "send" not in original._client.__dict__


def test_a_shared_client_outside_of_every_session(openai_client):
    client = deadstop.share(openai_client)
    with pytest.raises(deadstop.DeadstopError, match="outside of every session"):
        client.with_options(max_retries=0).chat.completions.create(model="gpt-4o-plain", messages=[])
    with pytest.raises(deadstop.DeadstopError, match="guard the original"):
        deadstop.guard(client, agent="a")
    assert ask(openai_client).choices


def test_threads_of_a_pool_have_their_requests_sessions(openai_client):
    client = deadstop.share(openai_client)

    def handle(n):
        with deadstop.session(agent="a", session=f"t{n}") as session:
            ask(client)
            return session.get_state().model_calls

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(handle, range(12))) == [1] * 12


def test_a_guarded_copy_leaves_the_original_alone(openai_client):
    first, second = deadstop.session(agent="a"), deadstop.session(agent="b")
    one, two = first.guarded(openai_client), second.guarded(openai_client)
    ask(one)
    first.kill("enough")
    with pytest.raises(deadstop.DeadstopKilled):
        ask(one)
    ask(two)
    ask(openai_client)
    assert (first.get_state().model_calls, second.get_state().model_calls) == (1, 1)
    # A copy that is collected does not close the connections of the others.
    del one
    gc.collect()
    ask(two)
    ask(openai_client)
