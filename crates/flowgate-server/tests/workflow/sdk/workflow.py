"""A workflow in Python: the client from PyPI, and a FastAPI endpoint that checks signatures."""

import asyncio
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

import uvicorn
from fastapi import FastAPI, Request
from qstash import AsyncQStash, Receiver
from upstash_workflow import AsyncWorkflowContext, CallResponse
from upstash_workflow.fastapi import Serve

BASE, TOKEN = os.environ["QSTASH_URL"], os.environ["QSTASH_TOKEN"]
PORT = int(sys.argv[1])
SITE = f"http://127.0.0.1:{PORT}"

ran: dict[str, int] = {}
failures: list[dict] = []


def count(name: str) -> int:
    ran[name] = ran.get(name, 0) + 1
    return ran[name]


def ask(method: str, path: str, body: bytes | None = None, headers: dict | None = None, base: str = BASE):
    request = urllib.request.Request(f"{base}{path}", data=body, method=method)
    request.add_header("Authorization", f"Bearer {TOKEN}")
    for name, value in (headers or {}).items():
        request.add_header(name, value)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or b"null")


def until(what: str, asked):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = asked()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what}: not in time")


def reached(run: str, state: str):
    def look():
        runs = ask("GET", f"/v2/workflows/events?workflowRunId={run}")["runs"]
        return runs[0] if runs and runs[0]["workflowState"] == state else None

    return until(f"{run} is {state}", look)


app = FastAPI()
serve = Serve(app)
client = AsyncQStash(TOKEN, base_url=BASE)
keys = ask("GET", "/v2/keys")
receiver = Receiver(current_signing_key=keys["current"], next_signing_key=keys["next"])


@app.post("/third")
async def third(request: Request):
    return {"said": await request.json()}


@serve.post("/steps", qstash_client=client, receiver=receiver)
async def steps(context: AsyncWorkflowContext[dict]) -> None:
    async def first():
        count("first")
        return {"got": context.request_payload["text"]}

    async def second():
        count("second")
        return f"{one['got']}!"

    one = await context.run("first", first)
    await context.sleep("nap", 1)
    two = await context.run("second", second)
    called: CallResponse = await context.call(
        "third", url=f"{SITE}/third", method="POST", body={"ask": two}, headers={"x-third": "yes"}
    )

    async def last():
        return [called.status, called.body, context.headers.get("x-user")]

    ran["result"] = await context.run("last", last)


async def told(context, status: int, response: str, headers: dict):
    failures.append({"run": context.workflow_run_id, "status": status, "response": response})


@serve.post("/fails", qstash_client=client, receiver=receiver, retries=0, failure_function=told)
async def fails(context: AsyncWorkflowContext[dict]) -> None:
    async def broken():
        count("broken")
        raise ValueError("it is broken")

    await context.run("broken", broken)


def check() -> None:
    begun = ask("POST", "/steps", b'{"text": "hi"}', {"content-type": "application/json", "x-user": "me"}, base=SITE)
    raise AssertionError(f"an unsigned request was taken: {begun}")


def main() -> None:
    server = uvicorn.Server(uvicorn.Config(app, port=PORT, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    until("the endpoint listens", lambda: server.started)

    try:
        check()
    except urllib.error.HTTPError as refused:
        assert refused.code >= 400, refused

    # A message to the endpoint begins a run.
    headers = {"Content-Type": "application/json", "Upstash-Forward-X-User": "me"}
    ask("POST", f"/v2/publish/{SITE}/steps", b'{"text": "hi"}', headers)
    runs = until("a run has begun", lambda: ask("GET", "/v2/workflows/events")["runs"])
    run = reached(runs[0]["workflowRunId"], "RUN_SUCCESS")
    names = [step["stepName"] for group in run["steps"] for step in group["steps"]]
    assert names == ["init", "first", "nap", "second", "third", "last"], names
    assert (ran["first"], ran["second"]) == (1, 1), ran
    assert ran["result"] == [200, {"said": {"ask": "hi!"}}, "me"], ran["result"]

    ask("POST", f"/v2/publish/{SITE}/fails", b"{}", {"Content-Type": "application/json"})
    until("the failure is told", lambda: failures)
    failed = reached(failures[0]["run"], "RUN_FAILED")
    assert failures[0]["status"] == 500 and "it is broken" in failures[0]["response"], failures
    assert ran["broken"] == 1, ran
    until("the telling has ended", lambda: ask("GET", f"/v2/workflows/events?workflowRunId={failed['workflowRunId']}")["runs"][0]["failureFunction"]["state"] == "CALLBACK_SUCCESS")
    print("all well")
    os._exit(0)


try:
    main()
except BaseException as error:
    print(repr(error), file=sys.stderr)
    os._exit(1)
