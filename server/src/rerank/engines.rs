//! Asks engine sidecars for evidence: one, a second when the first is silent or fails, and believes neither blindly.

use std::time::{Duration, Instant};

use anyhow::Result;
use shakmaty::{CastlingMode, EnPassantMode, fen::Fen, uci::UciMove};
use tokio::task::{JoinError, JoinSet};
use tonic::{Code, Request, Status};
use zeitnot_encoding::{Game, LegalMoves, evidence::Score, rerank::Candidates};
use zeitnot_proto::engine::v1::EvaluateCandidatesRequest;

use super::{
    budget::Plan,
    endpoints::{Client, Endpoints, Ticket},
};
use crate::{config::RerankOptions, metrics::RerankMetrics, wire};

/// Most sidecars that are asked for one prediction.
const MOST_ASKED: usize = 3;

/// A position and the moves to score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The position.
    pub fen: String,
    /// The moves, in UCI.
    pub candidates: Vec<String>,
}

impl Question {
    /// These candidates of a game's legal moves.
    pub fn of(game: &Game, legal: &LegalMoves, candidates: &Candidates) -> Self {
        let moves = candidates.places.iter().filter_map(|&place| legal.moves().get(place));
        Question {
            fen: Fen::from_position(game.position(), EnPassantMode::Legal).to_string(),
            candidates: moves.map(|&mv| UciMove::from_move(mv, CastlingMode::Standard).to_string()).collect(),
        }
    }
}

/// What an engine says of the candidates, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scored {
    /// Their scores.
    pub scores: Vec<Option<Score>>,
    /// The scores' depths.
    pub depths: Vec<u32>,
}

/// Why there is no evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No engine could be reached, or none gave scores that make sense.
    Unavailable,
    /// None gave scores in time.
    TooLate,
}

/// All sidecars.
#[derive(Debug)]
pub struct Engines {
    endpoints: Endpoints,
    hedge: Duration,
    metrics: RerankMetrics,
}

/// Why one sidecar gave no scores.
#[derive(Clone, Debug)]
enum Failure {
    /// Its queue is full.
    Full,
    /// It did not answer in time.
    Late,
    /// It answered and scored nothing.
    Empty,
    /// It takes the question for nonsense.
    Refused,
    /// It fails, or cannot be reached.
    Status(Status),
    /// What it says makes no sense.
    Lied(String),
}

type Heard = Result<Scored, Failure>;

impl Engines {
    /// The sidecars that the options name; within a runtime.
    ///
    /// # Errors
    ///
    /// Names the option that cannot be used.
    pub fn new(options: &RerankOptions, metrics: RerankMetrics) -> Result<Self> {
        let endpoints = Endpoints::new(options.addresses()?, options.tls_authority()?, metrics.clone())?;
        Ok(Engines { endpoints, hedge: options.hedge(), metrics })
    }

    /// Scores, from whichever sidecar gives them first, before the plan's time is over. Whoever else was asked is told to
    /// stop.
    ///
    /// # Errors
    ///
    /// Why there are none.
    pub async fn evaluate(&self, question: &Question, plan: &Plan) -> Result<Scored, Missing> {
        let mut race = Race { engines: self, question, plan, tickets: Vec::new(), running: JoinSet::new() };
        if !race.ask_another() {
            return Err(Missing::Unavailable);
        }
        let mut missing = Missing::Unavailable;
        // Where the deadline leaves no time beyond the search, half of it must do.
        let now = Instant::now();
        let patience = (plan.movetime + self.hedge).min(plan.until.saturating_duration_since(now) / 2);
        let mut hedge_at = Some(now + patience);
        loop {
            tokio::select! {
                biased;
                Some(ended) = race.running.join_next() => match race.judge(ended) {
                    Ok(scored) => return Ok(scored),
                    Err(late) => {
                        if late {
                            missing = Missing::TooLate;
                        }
                        // At once: there is nothing to wait for.
                        if !race.ask_another() && race.running.is_empty() {
                            return Err(missing);
                        }
                    }
                },
                () = tokio::time::sleep_until(plan.until.into()) => {
                    race.out_of_time();
                    return Err(Missing::TooLate);
                }
                () = tokio::time::sleep_until(hedge_at.unwrap_or(plan.until).into()), if hedge_at.is_some() => {
                    hedge_at = None;
                    if race.ask_another() {
                        self.metrics.hedges.inc();
                    }
                }
            }
        }
    }
}

/// Sidecars that were asked the same.
struct Race<'a> {
    engines: &'a Engines,
    question: &'a Question,
    plan: &'a Plan,
    tickets: Vec<Ticket>,
    running: JoinSet<(usize, Heard)>,
}

impl Race<'_> {
    /// Asks a sidecar that was not asked yet, if there is one and time for it.
    fn ask_another(&mut self) -> bool {
        // What three could not answer would only burden the others.
        if self.tickets.len() >= MOST_ASKED {
            return false;
        }
        let Some(plan) = self.plan.at(Instant::now()) else { return false };
        let Some(mut ticket) = self.engines.endpoints.pick(&self.tickets) else { return false };
        ticket.fair = plan.is_fair();
        let (number, client) = (self.tickets.len(), ticket.client());
        let (question, asked) = (self.question.clone(), wire::engine::ask(self.question, &plan));
        self.tickets.push(ticket);
        self.running.spawn(async move { (number, ask(client, question, asked, plan.until).await) });
        true
    }

    /// The scores of a sidecar that has ended, or whether it was late.
    fn judge(&mut self, ended: Result<(usize, Heard), JoinError>) -> Result<Scored, bool> {
        let Ok((number, heard)) = ended else { return Err(false) }; // It panicked; its ticket ends with the race.
        let Some(ticket) = self.tickets.get_mut(number) else { return Err(false) };
        match heard {
            Ok(scored) => {
                let whole = scored.scores.iter().all(Option::is_some);
                ticket.answered(if whole { "ok" } else { "partial" });
                for slower in self.tickets.iter_mut().filter(|ticket| !ticket.has_ended()) {
                    if slower.fair && slower.age() > self.plan.movetime {
                        slower.failed("hedged", "another engine was faster");
                    } else {
                        slower.excused("hedged");
                    }
                }
                Ok(scored)
            }
            Err(failure) => {
                failure.tell(ticket);
                Err(matches!(failure, Failure::Late))
            }
        }
    }

    fn out_of_time(&mut self) {
        self.tickets.iter_mut().filter(|ticket| !ticket.has_ended()).for_each(|ticket| Failure::Late.tell(ticket));
    }
}

impl Failure {
    /// Tells of it.
    fn tell(&self, ticket: &mut Ticket) {
        match self {
            Failure::Full => ticket.excused("full"),
            // Who may ask anything must not be able to close a sidecar for others.
            Failure::Refused => ticket.excused("error"),
            Failure::Late if ticket.fair => ticket.failed("timeout", "no answer in time"),
            Failure::Late => ticket.excused("timeout"),
            Failure::Empty if ticket.fair => ticket.failed("empty", "nothing was scored"),
            Failure::Empty => ticket.excused("empty"),
            Failure::Status(status) => {
                tracing::debug!(engine = ticket.uri(), %status, "an engine fails");
                ticket.failed("error", status.message());
            }
            Failure::Lied(why) => {
                tracing::warn!(engine = ticket.uri(), why, "an engine's answer makes no sense");
                ticket.failed("lied", why);
            }
        }
    }
}

/// Asks one sidecar and judges its answer.
async fn ask(mut client: Client, question: Question, asked: EvaluateCandidatesRequest, until: Instant) -> Heard {
    let mut request = Request::new(asked);
    request.set_timeout(until.saturating_duration_since(Instant::now()));
    let answer = tokio::time::timeout_at(until.into(), client.evaluate_candidates(request)).await;
    let answer = answer.map_err(|_| Failure::Late)?.map_err(Failure::of)?.into_inner();
    let scored = wire::engine::heard(&question, &answer).map_err(Failure::Lied)?;
    if scored.scores.iter().any(Option::is_some) { Ok(scored) } else { Err(Failure::Empty) }
}

impl Failure {
    fn of(status: Status) -> Self {
        match status.code() {
            Code::ResourceExhausted => Failure::Full,
            // CANCELLED is what tonic makes of the time that was given.
            Code::DeadlineExceeded | Code::Cancelled => Failure::Late,
            Code::InvalidArgument => Failure::Refused,
            // Larger than any answer.
            Code::OutOfRange => Failure::Lied(status.message().to_owned()),
            _ => Failure::Status(status),
        }
    }
}
