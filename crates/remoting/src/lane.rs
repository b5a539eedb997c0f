//! Lanes: small thread pools for handlers that may block.
//!
//! A request waits in a bounded queue and is in one of three states: queued, taken by a worker, or expired.
//! The change out of "queued" is one compare-and-swap, so it is either run or answered as too old, never both.
//! The answer comes through a oneshot that the connection's task awaits together with the deadline; so a
//! request is answered in time even when every worker hangs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use ferromq_protocol::code::response;
use ferromq_protocol::command::Command;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::dispatch::{Dispatched, Handler, Lane, Outcome, Reply, RequestContext, Wait, run_caught};

const QUEUED: u8 = 0;
const TAKEN: u8 = 1;
const EXPIRED: u8 = 2;

struct Job {
    cx: RequestContext,
    request: Command,
    handler: Arc<dyn Handler>,
    answer: oneshot::Sender<Outcome>,
    state: Arc<AtomicU8>,
    queued_at: Instant,
}

impl Job {
    fn is_dead(&self) -> bool {
        self.state.load(Ordering::Acquire) == EXPIRED
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

struct Shared {
    lane: Lane,
    queue: Mutex<Queue>,
    wake: Condvar,
}

pub(crate) struct Pool {
    shared: Arc<Shared>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        let jobs = {
            let mut queue = self.shared.queue.lock();
            queue.closed = true;
            std::mem::take(&mut queue.jobs)
        };
        drop(jobs);
        self.shared.wake.notify_all();
    }
}

impl Pool {
    pub(crate) fn start(lane: Lane) -> Self {
        let shared = Arc::new(Shared {
            lane,
            queue: Mutex::default(),
            wake: Condvar::new(),
        });
        let runtime = tokio::runtime::Handle::try_current().ok();
        for n in 0..shared.lane.workers.max(1) {
            let worker = Arc::clone(&shared);
            let runtime = runtime.clone();
            let spawned = std::thread::Builder::new()
                .name(format!("{}-{n}", shared.lane.name))
                .spawn(move || {
                    let _entered = runtime.as_ref().map(tokio::runtime::Handle::enter);
                    work(&worker);
                });
            if let Err(error) = spawned {
                tracing::error!(lane = shared.lane.name, %error, "cannot start a lane thread; fewer will serve it");
            }
        }
        Self { shared }
    }

    pub(crate) fn len(&self) -> usize {
        self.shared.queue.lock().jobs.len()
    }

    pub(crate) fn head_wait(&self) -> Duration {
        let queue = self.shared.queue.lock();
        queue
            .jobs
            .iter()
            .find(|j| !j.is_dead())
            .map_or(Duration::ZERO, |j| j.queued_at.elapsed())
    }

    pub(crate) fn submit(
        &self,
        cx: &RequestContext,
        request: Command,
        handler: &Arc<dyn Handler>,
    ) -> Dispatched {
        let lane = &self.shared.lane;
        let busy = request.reply(response::SYSTEM_BUSY);
        let (answer, outcome) = oneshot::channel();
        let state = Arc::new(AtomicU8::new(QUEUED));
        let queued_at = Instant::now();
        {
            let mut queue = self.shared.queue.lock();
            while queue.jobs.len() >= lane.queue && queue.jobs.front().is_some_and(Job::is_dead) {
                queue.jobs.pop_front();
            }
            if queue.jobs.len() >= lane.queue.max(1) {
                let remark = format!(
                    "[OVERLOAD]system busy, start flow control for a while: {} requests wait in lane {}",
                    queue.jobs.len(),
                    lane.name
                );
                return Dispatched::Now(Some(busy.with_remark(remark).into()));
            }
            queue.jobs.push_back(Job {
                cx: cx.clone(),
                request,
                handler: Arc::clone(handler),
                answer,
                state: Arc::clone(&state),
                queued_at,
            });
        }
        self.shared.wake.notify_one();
        let deadline = queued_at + lane.max_wait;
        let shared = Arc::clone(&self.shared);
        Dispatched::Later(Wait::Maybe(Box::pin(await_outcome(
            outcome, state, deadline, busy, shared,
        ))))
    }
}

async fn await_outcome(
    mut outcome: oneshot::Receiver<Outcome>,
    state: Arc<AtomicU8>,
    deadline: Instant,
    busy: Command,
    shared: Arc<Shared>,
) -> Option<Reply> {
    let got = match timeout_at(deadline, &mut outcome).await {
        Ok(got) => got,
        Err(_)
            if state
                .compare_exchange(QUEUED, EXPIRED, Ordering::AcqRel, Ordering::Acquire)
                .is_ok() =>
        {
            return Some(too_old(busy, &shared));
        }
        // A worker has it: however long it takes, its answer is the answer.
        Err(_) => outcome.await,
    };
    match got {
        Ok(Outcome::Reply(reply)) => Some(reply),
        Ok(Outcome::Later(later)) => Some(later.await),
        Ok(Outcome::Silent) => None,
        Err(_) => Some(
            busy.with_remark("[OVERLOAD]system busy, the server is stopping")
                .into(),
        ),
    }
}

fn too_old(busy: Command, shared: &Shared) -> Reply {
    let (size, lane) = (shared.queue.lock().jobs.len(), &shared.lane);
    let remark = format!(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {}ms, size of queue: {size}",
        lane.max_wait.as_millis(),
    );
    busy.with_remark(remark).into()
}

fn work(shared: &Shared) {
    loop {
        let job = {
            let mut queue = shared.queue.lock();
            loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.closed {
                    return;
                }
                shared.wake.wait(&mut queue);
            }
        };
        if job
            .state
            .compare_exchange(QUEUED, TAKEN, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            continue;
        }
        let outcome = run_caught(job.handler.as_ref(), &job.cx, job.request);
        if job.answer.send(outcome).is_err() {
            tracing::debug!(
                lane = shared.lane.name,
                "an answer came after its connection was gone"
            );
        }
    }
}
