"""Every method of the vendor's client for Python, against a server that it does not know."""

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from qstash import QStash, Receiver
from qstash.errors import QStashError

calls = []


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        calls.append((self.path, self.command, dict(self.headers.items()), body.decode()))
        self.send_response(500 if self.path.startswith("/fail") else 200)
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"done")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
client = QStash(os.environ["QSTASH_TOKEN"], base_url=os.environ["QSTASH_URL"], retry=False)


def until(what, ask):
    deadline = time.monotonic() + 60
    while True:
        found = ask()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what}: not in time"
        time.sleep(0.02)


def came(path, count=1):
    return until(f"{count} to {path}", lambda: (found := [call for call in calls if call[0] == path]) and len(found) >= count and found)


def refused(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except QStashError:
        return
    raise AssertionError(f"{function} was not refused")


# Messages.
sent = client.message.publish_json(
    url=f"{url}/json",
    body={"hello": "world"},
    headers={"X-Mine": "1"},
    retries=2,
    retry_delay="1000 * (1 + retried)",
    label="greeting",
    timeout="30s",
    flow_control={"key": "hello", "parallelism": 3},
)
path, method, headers, body = came("/json")[0]
assert json.loads(body) == {"hello": "world"} and headers["x-mine"] == "1", headers
keys = client.signing_key.get()
receiver = Receiver(current_signing_key=keys.current, next_signing_key=keys.next)
receiver.verify(signature=headers["upstash-signature"], body=body, url=f"{url}/json")
message = client.message.get(sent.message_id)
assert message.flow_control.key == "hello" and message.flow_control.parallelism == 3, message
assert message.flow_control.period == 1 and message.max_retries == 2, message
assert message.retry_delay_expression == "1000 * (1 + retried)", message
client.message.publish(url=f"{url}/raw", body=b"bytes", content_type="text/x-mine", method="PUT")
assert came("/raw")[0][1] == "PUT"
later = [client.message.publish(url=f"{url}/later", delay="1h").message_id for _ in range(3)]
client.message.cancel(later[0])
assert client.message.cancel_many([later[1]]) == 1
assert client.message.cancel_many([]) == 0, "nothing is named, and not everything"
assert client.dlq.delete_many([]) == 0
assert client.message.get(later[2]).message_id == later[2]
# What was answered a moment ago and is not settled yet counts as well.
assert client.message.cancel_all() >= 1
refused(client.message.get, "msg_unknown")
refused(client.message.publish, url=f"{url}/x", flow_control={"key": "a b", "parallelism": 1})
first = client.message.publish(url=f"{url}/once", content_based_deduplication=True, body="1")
second = client.message.publish(url=f"{url}/once", content_based_deduplication=True, body="1")
assert second.deduplicated and second.message_id == first.message_id
batch = client.message.batch_json([
    {"url": f"{url}/batch", "body": 1, "flow_control": {"key": "hello", "rate": 10, "period": "1m"}},
    {"url": f"{url}/batch", "body": 2, "queue": "batched"},
])
assert len(batch) == 2
came("/batch", 2)
client.message.batch([{"url": f"{url}/plain", "body": "x"}])
came("/plain")

# URL groups.
client.url_group.delete("group")
client.url_group.upsert_endpoints("group", [{"url": f"{url}/x", "name": "x"}, {"url": f"{url}/y"}])
group = client.url_group.get("group")
assert len(group.endpoints) == 2 and len(client.url_group.list()) == 1
assert len(client.message.publish(url_group="group", body="all")) == 2
came("/x"), came("/y")
client.url_group.remove_endpoints("group", [{"name": "x"}])
assert len(client.url_group.get("group").endpoints) == 1
client.url_group.delete("group")

# Queues.
client.queue.upsert("line", parallelism=2, paused=True)
client.message.enqueue(queue="line", url=f"{url}/queued", body="1")
client.message.enqueue_json(queue="line", url=f"{url}/queued", body={"n": 2})
queue = client.queue.get("line")
assert (queue.parallelism, queue.paused, queue.lag) == (2, True, 2), queue
client.queue.resume("line")
came("/queued", 2)
client.queue.pause("line")
assert "line" in [queue.name for queue in client.queue.list()]
client.queue.delete("line")
refused(client.queue.get, "line")

# Flow control.
for _ in range(3):
    client.message.publish(url=f"{url}/held", flow_control={"key": "held", "rate": 1, "period": "1h"})
came("/held")
info = until("two wait", lambda: (found := client.flow_control.get("held")).wait_list_size == 2 and found)
assert (info.rate_max, info.rate_count, info.rate_period, info.is_paused) == (1, 1, 3600, False), info
client.flow_control.pause("held")
client.flow_control.reset_rate("held")
client.flow_control.pin("held", {"parallelism": 5, "rate": 7, "period": 60})
info = client.flow_control.get("held")
assert info.is_paused and info.is_pinned_parallelism and info.is_pinned_rate, info
assert (info.parallelism_max, info.rate_max, info.rate_period) == (5, 7, 60), info
assert len([call for call in calls if call[0] == "/held"]) == 1
client.flow_control.resume("held")
came("/held", 3)
client.flow_control.unpin("held", {"parallelism": True, "rate": True})
assert not client.flow_control.get("held").is_pinned_rate
assert client.flow_control.get_global_parallelism().parallelism_count >= 0

# Schedules.
schedule_id = client.schedule.create_json(
    cron="0 4 1 1 *",
    destination=f"{url}/scheduled",
    body={"yearly": True},
    headers={"X-Mine": "2"},
    schedule_id="yearly",
    retries=1,
    flow_control={"key": "yearly", "parallelism": 1},
)
schedule = client.schedule.get(schedule_id)
assert (schedule.cron, schedule.retries, schedule.flow_control.key) == ("0 4 1 1 *", 1, "yearly"), schedule
assert schedule.headers == {"Content-Type": ["application/json"], "X-Mine": ["2"]}, schedule.headers
client.schedule.pause(schedule_id)
assert client.schedule.get(schedule_id).paused
client.schedule.resume(schedule_id)
assert len(client.schedule.list()) == 1
plain = client.schedule.create(cron="0 4 1 1 *", destination=f"{url}/scheduled", body="x", queue="line")
client.schedule.delete(plain)
client.schedule.delete(schedule_id)
refused(client.schedule.get, schedule_id)

# Dead letters.
failed = [client.message.publish(url=f"{url}/fail/{label}", retries=0, label=label).message_id for label in ("one", "two", "three")]
letters = until("three letters", lambda: len(found := client.dlq.list().messages) == 3 and found)
assert {letter.message_id for letter in letters} == set(failed)
letter = client.dlq.get(letters[0].dlq_id)
assert (letter.response_status, letter.response_body) == (500, "done"), letter
assert len(client.dlq.list(filter={"label": "two"}).messages) == 1
page = client.dlq.list(count=2)
assert len(page.messages) == 2 and page.cursor
client.dlq.delete(letters[0].dlq_id)
refused(client.dlq.get, letters[0].dlq_id)
assert client.dlq.delete_many([letter.dlq_id for letter in letters[1:]]) == 2
assert client.dlq.list().messages == []

# Logs.
logs = until("it is delivered", lambda: len(found := client.log.list(filter={"message_id": sent.message_id}).logs) == 3 and found)
assert [log.state.value for log in logs] == ["DELIVERED", "ACTIVE", "CREATED"], logs
page = client.log.list(count=1)
assert len(page.logs) == 1 and page.cursor
everything, cursor = [], None
while True:
    page = client.log.list(count=7, cursor=cursor)
    everything += page.logs
    cursor = page.cursor
    if cursor is None:
        break
assert len(everything) > 40, len(everything)

# Signing keys.
rotated = client.signing_key.rotate()
assert rotated.current == keys.next and rotated.next != keys.next

print("python: all well")
os._exit(0)
