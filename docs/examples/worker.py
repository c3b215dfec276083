"""Runs tasks of Flowgate: flowgate worker --processes=8 -- python3 docs/examples/worker.py"""
import json
import sys


def resize(body):
    print(f"resizing {body['image']}", file=sys.stderr, flush=True)
    return {"image": body["image"], "width": 640}


HANDLERS = {"resize": resize}
for line in sys.stdin:
    task = json.loads(line)
    handler = HANDLERS.get(task["kind"])
    try:
        answer = {"result": handler(task["body"])} if handler else {"error": "no handler for kind " + repr(task["kind"])}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({"id": task["id"], **answer}), flush=True)
