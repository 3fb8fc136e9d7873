//! Test support: a small UCI engine whose scores are always the same, and which misbehaves on demand.
//!
//! ```text
//! zeitnot-fake-engine [--mode NAME] [--mode-file PATH]
//! ```
//!
//! The file is read at the start and before each search; while it is absent or empty, `--mode` holds. A score is the
//! material after the move, with a little noise from a hash of the position and the depth. It ends with its input,
//! whatever its mode.

use std::{
    env, fs,
    io::{self, BufRead, Write},
    process::{self, Command, exit},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use shakmaty::{CastlingMode, Chess, Color, EnPassantMode, Move, Position, fen::Fen, uci::UciMove, zobrist::Zobrist64};

/// Deepest search; one that nothing ends waits there.
const DEEPEST: u32 = 64;
/// Time for a depth of a slow search.
const SLOW: Duration = Duration::from_millis(50);
/// Pause between what it says unasked.
const CHATTER: Duration = Duration::from_millis(2);

/// How it behaves. Names are those of `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Normal,
    /// Never greets.
    HangHandshake,
    /// Neither scores nor obeys `stop`.
    HangSearch,
    /// Scores three depths, then does not obey `stop`.
    HangLate,
    CrashStart,
    CrashSearch,
    /// Writes lines without end, without a score.
    Flood,
    /// Writes a line without end.
    EndlessLine,
    /// Scores a move that no piece can make.
    IllegalPv,
    /// Scores a move of the other side.
    WrongSide,
    /// Ends with a move that no piece can make.
    IllegalBest,
    NonsenseScore,
    HugeScore,
    /// Scores all legal moves.
    IgnoresSearchmoves,
    /// Ignores MultiPV.
    SingleLine,
    /// Takes 50 ms for a depth.
    Slow,
    /// `exit-after-3`: ends after so many searches.
    ExitAfter(u32),
    /// Starts a process that sleeps, and gives its id in `info string`.
    Grandchild,
    /// Talks between searches: also scores and the end of a search that nobody began.
    Chatter,
    /// Never scores the last candidate.
    Partial,
}

impl Mode {
    fn parse(name: &str) -> Option<Mode> {
        Some(match name {
            "normal" | "" => Mode::Normal,
            "hang-handshake" => Mode::HangHandshake,
            "hang-search" => Mode::HangSearch,
            "hang-late" => Mode::HangLate,
            "crash-start" => Mode::CrashStart,
            "crash-search" => Mode::CrashSearch,
            "flood" => Mode::Flood,
            "endless-line" => Mode::EndlessLine,
            "illegal-pv" => Mode::IllegalPv,
            "wrong-side" => Mode::WrongSide,
            "illegal-best" => Mode::IllegalBest,
            "nonsense-score" => Mode::NonsenseScore,
            "huge-score" => Mode::HugeScore,
            "ignores-searchmoves" => Mode::IgnoresSearchmoves,
            "single-line" => Mode::SingleLine,
            "slow" => Mode::Slow,
            "grandchild" => Mode::Grandchild,
            "chatter" => Mode::Chatter,
            "partial" => Mode::Partial,
            _ => return name.strip_prefix("exit-after-")?.parse().ok().map(Mode::ExitAfter),
        })
    }
}

/// What `go` asks for.
#[derive(Debug, Default)]
struct Go {
    moves: Vec<Move>,
    depth: Option<u32>,
    nodes: Option<u64>,
    movetime: Option<Duration>,
}

impl Go {
    fn parse<'a>(mut words: impl Iterator<Item = &'a str>, position: &Chess) -> Go {
        let mut go = Go::default();
        while let Some(word) = words.next() {
            match word {
                "depth" => go.depth = words.next().and_then(|word| word.parse().ok()),
                "nodes" => go.nodes = words.next().and_then(|word| word.parse().ok()),
                "movetime" => go.movetime = words.next().and_then(|word| word.parse().ok()).map(Duration::from_millis),
                word => go.moves.extend(word.parse::<UciMove>().ok().and_then(|mv| mv.to_move(position).ok())),
            }
        }
        go
    }
}

struct Engine {
    args: Vec<String>,
    input: Receiver<String>,
    position: Chess,
    /// MultiPV.
    lines: usize,
    searches: u32,
}

fn main() {
    let args = env::args().skip(1).collect::<Vec<_>>();
    if args.first().is_some_and(|first| first == "--sleep") {
        return thread::sleep(Duration::from_secs(600));
    }
    let (sender, input) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    Engine { args, input, position: Chess::default(), lines: 1, searches: 0 }.serve();
}

impl Engine {
    fn mode(&self) -> Mode {
        let value = |name: &str| self.args.iter().skip_while(|arg| *arg != name).nth(1).cloned();
        let file = value("--mode-file").and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let file = Some(file.trim().to_owned()).filter(|name| !name.is_empty());
        let name = file.or_else(|| value("--mode")).unwrap_or_default();
        Mode::parse(&name).unwrap_or_else(|| {
            eprintln!("there is no mode {name}");
            exit(2)
        })
    }

    fn serve(mut self) {
        match self.mode() {
            Mode::HangHandshake => self.hang(),
            Mode::CrashStart => exit(3),
            _ => {}
        }
        loop {
            let talks = self.searches > 0 && self.mode() == Mode::Chatter;
            let pause = if talks { CHATTER } else { Duration::from_secs(3600) };
            match self.input.recv_timeout(pause) {
                Ok(line) => self.obey(&line),
                Err(RecvTimeoutError::Timeout) if talks => say("info string nobody asked"),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => exit(0),
            }
        }
    }

    fn obey(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("uci") => say("id name Fake 1.0\nid author Zeitnot\n\
                option name MultiPV type spin default 1 min 1 max 256\nuciok"),
            Some("isready") => say("readyok"),
            Some("setoption") if words.any(|word| word == "MultiPV") => {
                self.lines = words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(1);
            }
            Some("position") => self.set(line),
            Some("go") => self.search(&Go::parse(words, &self.position)),
            Some("quit") => exit(0),
            _ => {}
        }
    }

    fn set(&mut self, line: &str) {
        let (start, moves) = line.split_once(" moves ").unwrap_or((line, ""));
        let fen = start.split_once("fen ").map(|(_, fen)| fen.parse::<Fen>());
        let position = match fen {
            Some(fen) => fen.ok().and_then(|fen| fen.into_position(CastlingMode::Standard).ok()),
            None => Some(Chess::default()),
        };
        let played = |position: Chess, word: &str| {
            let mv = word.parse::<UciMove>().ok()?.to_move(&position).ok()?;
            position.play(mv).ok()
        };
        let position = position.and_then(|position| moves.split_ascii_whitespace().try_fold(position, played));
        self.position = position.unwrap_or_else(|| {
            eprintln!("{line}: there is no such position");
            exit(2)
        });
    }

    fn search(&mut self, go: &Go) {
        let mode = self.mode();
        self.searches += 1;
        match mode {
            Mode::HangSearch => self.hang(),
            Mode::CrashSearch => exit(3),
            Mode::Flood => loop {
                say("info depth 1 currmove e2e4 currmovenumber 1");
            },
            Mode::EndlessLine => loop {
                write("info string and on and on ");
            },
            Mode::IllegalPv => say("info depth 1 multipv 1 score cp 9 nodes 20 pv a1h7"),
            Mode::WrongSide => {
                let other = self.position.clone().swap_turn().ok();
                let mv = other.and_then(|other| other.legal_moves().first().copied());
                say(&format!("info depth 1 multipv 1 score cp 9 nodes 20 pv {}", mv.map_or("a1h7".into(), name)));
            }
            Mode::NonsenseScore => say("info depth 1 multipv 1 score cp nan nodes 20 pv e2e4"),
            Mode::HugeScore => say("info depth 1 multipv 1 score cp 99999999999999 nodes 20 pv e2e4"),
            Mode::Grandchild => self.grandchild(),
            _ => {}
        }
        let best = self.iterate(go, mode);
        match mode {
            Mode::IllegalBest => say("bestmove a1h7"),
            _ => say(&format!("bestmove {}", best.map_or("(none)".into(), name))),
        }
        match mode {
            Mode::Chatter => say("info depth 99 multipv 1 score cp 9999 nodes 9999 pv a1h7\nbestmove a1h7"),
            Mode::ExitAfter(most) if self.searches >= most => exit(0),
            _ => {}
        }
    }

    /// Scores depth by depth. Gives the best move.
    fn iterate(&self, go: &Go, mode: Mode) -> Option<Move> {
        let started = Instant::now();
        let every = go.moves.is_empty() || mode == Mode::IgnoresSearchmoves;
        let moves = if every { self.position.legal_moves().into_iter().collect() } else { go.moves.clone() };
        let unscored = moves.last().copied().filter(|_| mode == Mode::Partial);
        let mut best = moves.first().copied()?;
        let lines = if mode == Mode::SingleLine { 1 } else { self.lines };
        let pace = if mode == Mode::Slow { SLOW } else { Duration::ZERO };
        let end = go.movetime.map(|time| started + time);
        let mut nodes = 0;
        for depth in 1..=go.depth.unwrap_or(DEEPEST).min(DEEPEST) {
            if mode == Mode::HangLate && depth > 3 {
                self.hang();
            }
            if self.stopped(Instant::now() + pace) {
                return Some(best);
            }
            let mut scored = moves.iter().map(|mv| (self.score(*mv, depth), *mv)).collect::<Vec<_>>();
            scored.sort_by_key(|(score, mv)| (-score, name(*mv)));
            best = scored.first().map_or(best, |(_, mv)| *mv);
            for (place, (score, mv)) in (1..=lines).zip(scored) {
                nodes += u64::from(depth) * 10;
                if Some(mv) != unscored {
                    let time = started.elapsed().as_millis();
                    let score = if score >= MATE { "mate 1".to_owned() } else { format!("cp {}", score) };
                    let head = format!("info depth {depth} seldepth {depth} multipv {place} score {score}");
                    say(&format!("{head} nodes {nodes} nps 1000000 time {time} pv {}", name(mv)));
                }
            }
            let over = end.is_some_and(|end| Instant::now() >= end);
            if over || go.nodes.is_some_and(|most| nodes >= most) {
                return Some(best);
            }
        }
        match (end, go.depth.or(go.nodes.map(|_| 0))) {
            (Some(end), None) => drop(self.stopped(end)),
            (None, None) => while !self.stopped(Instant::now() + Duration::from_secs(60)) {},
            _ => {}
        }
        Some(best)
    }

    fn score(&self, mv: Move, depth: u32) -> i32 {
        let Ok(child) = self.position.clone().play(mv) else { return 0 };
        if child.is_checkmate() {
            return MATE;
        }
        if child.is_stalemate() || child.is_insufficient_material() {
            return 0;
        }
        let Zobrist64(hash) = child.zobrist_hash(EnPassantMode::Legal);
        let noise = |seed: u64, most: u64| {
            let mixed = (hash ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            i32::try_from(mixed % (2 * most + 1)).unwrap_or(0) - i32::try_from(most).unwrap_or(0)
        };
        material(&child, !child.turn()) + noise(0, 15) + noise(u64::from(depth) << 20, 3)
    }

    /// Waits for `stop`; false at the end of the time.
    fn stopped(&self, until: Instant) -> bool {
        loop {
            match self.input.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line.trim() == "stop" => return true,
                Ok(line) if line.trim() == "isready" => say("readyok"),
                Ok(line) if line.trim() == "quit" => exit(0),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => exit(0),
            }
        }
    }

    /// Does nothing more, until the input ends.
    fn hang(&self) -> ! {
        while self.input.recv().is_ok() {}
        exit(0)
    }

    /// Starts a process that has the same output and arguments.
    fn grandchild(&self) {
        let child = env::current_exe().and_then(|own| Command::new(own).arg("--sleep").args(&self.args).spawn());
        match child {
            Ok(child) => say(&format!("info string grandchild {} of {}", child.id(), process::id())),
            Err(error) => {
                eprintln!("{error}");
                exit(2)
            }
        }
    }
}

/// Centipawns that stand for a mate in one.
const MATE: i32 = 100_000;

fn material(position: &Chess, side: Color) -> i32 {
    let of = |side: Color| {
        let counts = position.board().material_side(side);
        let values = [(counts.pawn, 100), (counts.knight, 300), (counts.bishop, 310), (counts.rook, 500)];
        values.iter().map(|(count, value)| i32::from(*count) * value).sum::<i32>() + i32::from(counts.queen) * 900
    };
    of(side) - of(!side)
}

fn name(mv: Move) -> String {
    UciMove::from_move(mv, CastlingMode::Standard).to_string()
}

fn say(line: &str) {
    write(&format!("{line}\n"));
}

fn write(text: &str) {
    let mut output = io::stdout().lock();
    if output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_err() {
        exit(0); // Nobody listens.
    }
}
