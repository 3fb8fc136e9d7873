//! Re-ranking with real engines, where they are installed: conventions of moves, sides and scores hold end to end.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use common::{
    Server,
    asking::{ask, server_with},
    strong,
};
use shakmaty::{CastlingMode, Chess, fen::Fen, uci::UciMove};
use tonic::{Request, Response, Status, transport::server::TcpIncoming};
use zeitnot_proto::{
    engine::v1::{
        CandidateScore, EvaluateCandidatesRequest, EvaluateCandidatesResponse, GetEngineRequest, GetEngineResponse,
        candidate_score,
        engine_service_server::{EngineService, EngineServiceServer},
    },
    v1::{Evidence, Position, PredictRequest, PredictResponse, Rerank, RerankMode, RerankStatus, evidence::Score},
};
use zeitnot_uci::{EngineConfig, Limits, Pool, Search};

/// The engine by this name that `scripts/setup.sh` installs.
fn engine(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.native/bin").join(name);
    if !path.exists() {
        eprintln!("SKIPPED: {name} is not installed");
    }
    path.exists().then_some(path)
}

/// The thinnest sidecar there can be.
struct Thin(Pool);

#[tonic::async_trait]
impl EngineService for Thin {
    async fn evaluate_candidates(
        &self,
        request: Request<EvaluateCandidatesRequest>,
    ) -> Result<Response<EvaluateCandidatesResponse>, Status> {
        let asked = request.into_inner();
        let position: Chess = asked.fen.parse::<Fen>().unwrap().into_position(CastlingMode::Standard).unwrap();
        let to_move = |uci: &String| uci.parse::<UciMove>().unwrap().to_move(&position).unwrap();
        let candidates = asked.candidates.iter().map(to_move).collect();
        let limits = asked.limits.unwrap();
        let movetime = limits.movetime.map(|time| Duration::try_from(time).unwrap());
        let limits = Limits { depth: (limits.depth > 0).then_some(limits.depth), nodes: None, movetime };
        let deadline = Some(tokio::time::Instant::now() + Duration::from_secs(20));
        let found = self.0.evaluate(Search { position, candidates, limits, fresh: true }, deadline).await;
        let found = found.map_err(|error| Status::unavailable(error.to_string()))?;
        let scores = asked.candidates.into_iter().zip(found.lines).map(|(uci, line)| CandidateScore {
            uci,
            score: line.as_ref().map(|line| match line.score {
                zeitnot_uci::Score::Centipawns(cp) => candidate_score::Score::Centipawns(cp),
                zeitnot_uci::Score::Mate(moves) => candidate_score::Score::Mate(moves),
            }),
            rank: line.as_ref().map_or(0, |line| line.rank),
            depth: line.map_or(0, |line| line.depth),
        });
        let scores = scores.collect();
        Ok(Response::new(EvaluateCandidatesResponse { scores, complete: found.complete, ..Default::default() }))
    }

    async fn get_engine(&self, _: Request<GetEngineRequest>) -> Result<Response<GetEngineResponse>, Status> {
        Ok(Response::new(GetEngineResponse::default()))
    }
}

async fn server(engine: PathBuf) -> Server {
    let pool = Pool::start(EngineConfig::new(engine), 1, 16).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let flag = format!("--engines=http://{}", listener.local_addr().unwrap());
    let service = EngineServiceServer::new(Thin(pool));
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)),
    );
    server_with(&flag).await
}

async fn ask_at(server: &Server, fen: &str) -> PredictResponse {
    let movetime = Some(prost_types::Duration { seconds: 8, nanos: 0 });
    let rerank = Some(Rerank { mode: RerankMode::Required.into(), depth: 6, nodes: 0, movetime });
    let position = Some(Position { initial_fen: fen.to_owned(), moves: vec![] });
    let answer = ask(server, PredictRequest { rerank, position, ..strong(&[]) }).await;
    assert_eq!(answer.rerank_status(), RerankStatus::Applied, "{fen}");
    answer
}

fn evidence(answer: &PredictResponse, uci: &str) -> Evidence {
    answer.moves.iter().find(|mv| mv.uci == uci).unwrap().evidence.unwrap()
}

#[tokio::test]
async fn engines_and_server_mean_the_same_by_moves_sides_and_scores() {
    for name in ["stockfish", "ethereal"] {
        let Some(path) = engine(name) else { continue };
        let server = server(path).await;
        let mate = ask_at(&server, "6k1/5ppp/8/8/8/8/5PPP/R5K1 w - - 0 1").await;
        assert_eq!(evidence(&mate, "a1a8").score, Some(Score::Mate(1)), "{name}");
        assert_eq!((evidence(&mate, "a1a8").rank, evidence(&mate, "a1a8").loss), (1, 0));
        assert_eq!(mate.insight.unwrap().best_move.unwrap().san, "Ra8#");
        let black = ask_at(&server, "3qk3/8/8/8/8/8/8/4K3 b - - 0 1").await;
        let best = black.moves.iter().filter_map(|mv| mv.evidence).find(|evidence| evidence.rank == 1).unwrap();
        let won = match best.score.unwrap() {
            Score::Centipawns(cp) => cp > 300,
            Score::Mate(moves) => moves > 0,
        };
        assert!(won, "{name}: Black is a queen up, and to move: {best:?}");
        let promotion = ask_at(&server, "8/P6k/8/8/8/8/8/K7 w - - 0 1").await;
        let (queen, knight) = (evidence(&promotion, "a7a8q"), evidence(&promotion, "a7a8n"));
        assert!(queen.rank < knight.rank && knight.loss > 300, "{name}: {queen:?}, {knight:?}");
        let castling = ask_at(&server, "4k3/8/8/8/8/8/3PPP2/4K2R w K - 0 1").await;
        assert!(evidence(&castling, "e1g1").depth > 0, "{name}: castling is the king's two-square move");
        let passing = ask_at(&server, "4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2").await;
        assert!(evidence(&passing, "e5d6").depth > 0, "{name}: the right to capture in passing is told");
    }
}
