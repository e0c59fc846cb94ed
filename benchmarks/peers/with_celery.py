"""The job in celery; publishes are confirmed, acks late, and no results kept."""

from celery import Celery

from peers import measured

app = Celery("benchmark", broker=measured.URL)
app.conf.update(
    broker_transport_options={"confirm_publish": True},
    task_acks_late=True,
    task_ignore_result=True,
    task_default_queue="benchmark.celery",
    worker_prefetch_multiplier=measured.PREFETCH // measured.THREADS,
    worker_send_task_events=False,
)


@app.task(name="noop")
def noop(sent_ns: int) -> None:
    measured.handled(sent_ns)


def send_all(many: list[int]) -> None:
    for sent_ns in many:
        noop.delay(sent_ns)


if __name__ == "__main__":
    measured.enqueue(send_all, noop.delay)
