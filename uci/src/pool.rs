//! Processes of one engine, each with a task of its own.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use shakmaty::{Chess, Position};
use tokio::{
    sync::oneshot,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep},
};

use crate::{
    Evaluation, Limits, Search, UciError,
    engine::{Engine, Names},
    queue::{Job, Queue},
    reply::{Reply, Stop},
};

/// Longest wait before a process is started again.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// How an engine is run.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Options that are set after the greeting.
    pub options: Vec<(String, String)>,
    /// Longest time until the engine has greeted.
    pub handshake: Duration,
    /// Longest time from `stop` to the end of the search.
    pub grace: Duration,
    /// Longest time without a line during a search.
    pub silence: Duration,
    /// Wait before a process is started again; it doubles up to 30 seconds.
    pub backoff: Duration,
}

impl EngineConfig {
    /// An engine with its own defaults.
    pub fn new(program: PathBuf) -> Self {
        EngineConfig {
            program,
            args: Vec::new(),
            options: Vec::new(),
            handshake: Duration::from_secs(10),
            grace: Duration::from_secs(1),
            silence: Duration::from_secs(60),
            backoff: Duration::from_millis(250),
        }
    }
}

/// What is known of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineInfo {
    /// Name it gives itself.
    pub name: String,
    /// Its authors.
    pub author: String,
    /// Whether one search scores all candidates. Otherwise it does not know `searchmoves` or MultiPV, and each is
    /// searched alone.
    pub together: bool,
}

/// How the pool is, and what has happened since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Processes configured.
    pub processes: usize,
    /// Processes that have greeted and live.
    pub ready: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Searches that were begun.
    pub searches: u64,
    /// Processes started again.
    pub restarts: u64,
    /// Processes that ended or did not start.
    pub crashes: u64,
    /// Processes that hung.
    pub hangs: u64,
    /// Processes that flooded.
    pub floods: u64,
    /// Processes that lied.
    pub lies: u64,
}

#[derive(Debug)]
struct Shared {
    config: EngineConfig,
    queue: Queue,
    together: AtomicBool,
    /// Until it is known whether `together` holds.
    probing: AtomicBool,
    names: Mutex<Names>,
    ready: AtomicUsize,
    searches: AtomicU64,
    restarts: AtomicU64,
    crashes: AtomicU64,
    hangs: AtomicU64,
    floods: AtomicU64,
    lies: AtomicU64,
}

/// Processes of one engine. Requests are served by the earliest deadline.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    processes: usize,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// Starts so many processes; at most `queue` requests may wait.
    ///
    /// # Errors
    ///
    /// When the engine cannot be run, does not greet, or cannot score a position.
    pub async fn start(config: EngineConfig, processes: usize, queue: usize) -> Result<Pool, UciError> {
        let first = Engine::start(&config).await?;
        let shared = Arc::new(Shared {
            config,
            queue: Queue::new(queue.max(1)),
            together: AtomicBool::new(true),
            probing: AtomicBool::new(true),
            names: Mutex::new(first.names().clone()),
            ready: AtomicUsize::new(0),
            searches: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            crashes: AtomicU64::new(0),
            hangs: AtomicU64::new(0),
            floods: AtomicU64::new(0),
            lies: AtomicU64::new(0),
        });
        let processes = processes.max(1);
        let engines = std::iter::once(Some(first)).chain(std::iter::repeat_with(|| None));
        let tasks = engines.take(processes).map(|engine| tokio::spawn(serve(Arc::clone(&shared), engine)));
        let pool = Pool { processes, tasks: Mutex::new(tasks.collect()), shared };
        // Tells whether the engine knows `searchmoves` before anybody needs to know.
        let position = Chess::default();
        let candidates = position.legal_moves().into_iter().take(2).collect();
        let limits = Limits { depth: Some(1), ..Limits::default() };
        let until = Instant::now() + pool.shared.config.handshake;
        pool.evaluate(Search { position, candidates, limits, fresh: false }, Some(until)).await?;
        pool.shared.probing.store(false, Ordering::Relaxed);
        Ok(pool)
    }

    /// Scores the candidates of a search. What is known at the deadline is the answer, marked as not complete. A dropped
    /// call stops its search.
    ///
    /// While no process lives, requests with a deadline wait for one to come back; those without fail.
    ///
    /// # Errors
    ///
    /// [`UciError`]; after an error the same request may succeed on another process.
    pub async fn evaluate(&self, search: Search, deadline: Option<Instant>) -> Result<Evaluation, UciError> {
        search.check(deadline.is_some())?;
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(UciError::Deadline);
        }
        let (reply, mut answer) = oneshot::channel();
        let key = self.shared.queue.push(Job { search, deadline, reply })?;
        match deadline {
            None => answer.await.unwrap_or(Err(UciError::Closed)),
            Some(deadline) => {
                if let Ok(answer) = tokio::time::timeout_at(deadline, &mut answer).await {
                    return answer.unwrap_or(Err(UciError::Closed));
                }
                if self.shared.queue.withdraw(&key) {
                    return Err(UciError::Deadline);
                }
                // The process answers within its grace after the deadline, since it has the request.
                let last = deadline + self.shared.config.grace + Duration::from_millis(100);
                let answer = tokio::time::timeout_at(last, answer).await;
                answer.map_or(Err(UciError::Deadline), |answer| answer.unwrap_or(Err(UciError::Closed)))
            }
        }
    }

    /// What is known of the engine.
    pub fn info(&self) -> EngineInfo {
        let names = self.shared.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        EngineInfo { name: names.name, author: names.author, together: self.shared.together.load(Ordering::Relaxed) }
    }

    /// How the pool is.
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            processes: self.processes,
            ready: shared.ready.load(Ordering::Relaxed),
            waiting: shared.queue.len(),
            searches: count(&shared.searches),
            restarts: count(&shared.restarts),
            crashes: count(&shared.crashes),
            hangs: count(&shared.hangs),
            floods: count(&shared.floods),
            lies: count(&shared.lies),
        }
    }

    /// Ends: what waits fails, what is searched is given up, all processes are killed when it returns.
    pub async fn shutdown(&self) {
        self.shared.queue.close();
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            let _ = task.await; // It has ended with the queue.
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.close(); // The tasks end with it.
    }
}

/// Serves the queue by one process until the queue is closed; then nothing of the process is left.
async fn serve(shared: Arc<Shared>, engine: Option<Engine>) {
    let mut task = JoinSet::new();
    tokio::select! {
        () = keep(&shared, &mut task, engine) => {}
        () = shared.queue.closed() => {}
    }
    task.shutdown().await;
}

/// What a process's task ends with: whether it served any request, and what went wrong.
type Ended = (bool, Option<UciError>);

/// Keeps one process alive.
async fn keep(shared: &Arc<Shared>, task: &mut JoinSet<Ended>, mut engine: Option<Engine>) {
    let mut backoff = shared.config.backoff;
    let mut again = false;
    loop {
        let started = match engine.take() {
            Some(engine) => Ok(engine),
            None => Engine::start(&shared.config).await,
        };
        let error = match started {
            Ok(engine) => {
                shared.restarts.fetch_add(u64::from(again), Ordering::Relaxed);
                engine.names().clone_into(&mut shared.names.lock().unwrap_or_else(PoisonError::into_inner));
                let (served, error) = supervise(shared, task, engine).await;
                if served {
                    backoff = shared.config.backoff;
                }
                match error {
                    Some(error) => error,
                    None => return,
                }
            }
            Err(error) => error,
        };
        again = true;
        note(shared, &error);
        tracing::warn!(%error, ?backoff, "the engine is started again");
        wait(shared, backoff, &error).await;
        backoff = (2 * backoff).min(LONGEST_BACKOFF);
    }
}

/// Serves requests on a task of its own, whose panic is a crash like any other.
async fn supervise(shared: &Arc<Shared>, task: &mut JoinSet<Ended>, engine: Engine) -> Ended {
    let own = Arc::clone(shared);
    task.spawn(async move {
        let _alive = Alive::new(&own);
        work(&own, engine).await
    });
    match task.join_next().await {
        Some(Ok(ended)) => ended,
        Some(Err(_)) | None => (false, Some(UciError::Crashed)),
    }
}

/// Counts a process as ready while it lives.
struct Alive<'a>(&'a Shared);

impl<'a> Alive<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.ready.fetch_add(1, Ordering::Relaxed);
        Alive(shared)
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.ready.fetch_sub(1, Ordering::Relaxed);
    }
}

fn note(shared: &Shared, error: &UciError) {
    let counter = match error {
        UciError::Hung => &shared.hangs,
        UciError::Flood => &shared.floods,
        UciError::Lied(_) => &shared.lies,
        _ => &shared.crashes,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Waits before the next start. Meanwhile those whose deadline passes are told, and those without one when nobody is left
/// to serve them.
async fn wait(shared: &Shared, backoff: Duration, error: &UciError) {
    const STEP: Duration = Duration::from_millis(20);
    let end = Instant::now() + backoff;
    while Instant::now() < end {
        sleep(STEP.min(backoff)).await;
        if shared.ready.load(Ordering::Relaxed) == 0 {
            shared.queue.expire(Instant::now());
            shared.queue.fail_patient(error);
        }
    }
}

/// Serves requests until the process is of no further use. Gives whether it served any, and what went wrong; nothing when
/// the queue was closed.
async fn work(shared: &Shared, mut engine: Engine) -> Ended {
    let mut served = false;
    loop {
        let job = tokio::select! {
            job = shared.queue.next() => job,
            error = engine.idle() => return (served, Some(error)),
        };
        let Some(Job { search, deadline, reply }) = job else { return (served, None) };
        let mut reply = Reply::new(reply);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            reply.send(Err(UciError::Deadline));
            continue;
        }
        shared.searches.fetch_add(1, Ordering::Relaxed);
        let mut stop = Stop { deadline, reply: &mut reply };
        let mut found = None;
        if shared.together.load(Ordering::Relaxed) {
            let probe = shared.probing.load(Ordering::Relaxed);
            found = engine.together(&search, &mut stop, probe).await;
            if found.is_none() {
                tracing::info!("the engine does not know `searchmoves`, candidates are searched one by one");
                shared.together.store(false, Ordering::Relaxed);
            }
        }
        let found = match found {
            Some(found) => found,
            None => engine.alone(&search, &mut stop).await,
        };
        let error = found.evaluation.as_ref().err().cloned();
        reply.send(found.evaluation);
        if !found.usable {
            return (served, Some(error.unwrap_or(UciError::Hung)));
        }
        served = true;
    }
}
