//! Games from PGN text, plain or compressed, one at a time.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    ops::ControlFlow,
    path::Path,
};

use pgn_reader::{RawComment, RawTag, Reader, SanPlus, Skip, Visitor};
use shakmaty::{Chess, Color, KnownOutcome, Outcome, Position};

use crate::{
    clk,
    filter::{Filter, Reason},
    record::{GameRecord, Player, pack},
};

/// Longest line of a tag, in bytes; a longer one breaks its game.
const LINE: usize = 4096;
/// Longest comment that is looked through in one piece, in bytes.
const COMMENT: usize = 16_384;

/// What reading one game gave.
pub type Verdict = Result<GameRecord, Dropped>;

/// A game that was left out.
#[derive(Clone, Debug)]
pub struct Dropped {
    /// Why.
    pub reason: Reason,
    /// The game's id, or its players.
    pub game: String,
    /// More about it, such as the illegal move.
    pub detail: String,
}

/// Opens a `.pgn` or `.pgn.zst` file. `progress` sees every byte read from disk.
///
/// # Errors
///
/// The system's, when the file cannot be opened.
pub fn open<F>(path: &Path, progress: F) -> io::Result<Box<dyn Read + Send>>
where
    F: FnMut(usize) + Send + 'static,
{
    let file = BufReader::with_capacity(1 << 16, Counted { inner: File::open(path)?, progress });
    if path.extension().is_some_and(|extension| extension == "zst") {
        Ok(Box::new(zstd::Decoder::with_buffer(file)?))
    } else {
        Ok(Box::new(file))
    }
}

struct Counted<F> {
    inner: File,
    progress: F,
}

impl<F: FnMut(usize)> Read for Counted<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        (self.progress)(read);
        Ok(read)
    }
}

/// Streams games through a filter.
pub struct Games<R: Read> {
    reader: Reader<R>,
    visitor: GameVisitor,
}

impl<R: Read> Games<R> {
    /// Reads games from PGN text.
    pub fn new(text: R, filter: Filter) -> Self {
        let reader = Reader::build(text).set_supported_tag_line_length(LINE).set_supported_comment_length(COMMENT);
        Games { reader: reader.finish(), visitor: GameVisitor { filter } }
    }
}

impl<R: Read> Iterator for Games<R> {
    /// An error is the text's end as far as it can be read.
    type Item = io::Result<Verdict>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.read_game(&mut self.visitor) {
            // A tag or comment that never ends: what is left of the game must not pass for another one.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                while let Err(error) = self.reader.skip_game() {
                    if error.kind() != io::ErrorKind::InvalidData {
                        return Some(Err(error));
                    }
                }
                let dropped = dropped(&GameRecord::default(), Reason::BrokenText, error.to_string());
                Some(Ok(Err(dropped)))
            }
            other => other.transpose(),
        }
    }
}

struct GameVisitor {
    filter: Filter,
}

/// Tags of the game being read.
#[derive(Default)]
struct Tags {
    game: GameRecord,
    variant: Option<String>,
    set_up: bool,
    result: Option<Outcome>,
    /// The path of the game's address, when `Site` is one.
    link: String,
}

/// `Site` as the host and path of an address, as lichess writes it for each game; else as it is, without a path.
fn site(text: &str) -> (String, String) {
    let address = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match address.map(|address| address.split_once('/').unwrap_or((address, ""))) {
        Some((host, path)) => (host.trim_start_matches("www.").to_owned(), path.to_owned()),
        None => (text.to_owned(), String::new()),
    }
}

/// Moves of the game being read.
struct Movetext {
    tags: Tags,
    position: Chess,
}

impl Visitor for GameVisitor {
    type Tags = Tags;
    type Movetext = Movetext;
    type Output = Verdict;

    fn begin_tags(&mut self) -> ControlFlow<Verdict, Tags> {
        ControlFlow::Continue(Tags::default())
    }

    fn tag(&mut self, tags: &mut Tags, name: &[u8], value: RawTag<'_>) -> ControlFlow<Verdict> {
        let text = || value.decode_utf8_lossy().into_owned();
        let game = &mut tags.game;
        match name {
            b"GameId" => game.id = text(),
            b"Site" => (game.site, tags.link) = site(&text()),
            b"Event" => game.event = text(),
            b"UTCDate" => game.date = text(),
            b"Date" if game.date.is_empty() => game.date = text(),
            b"White" => game.white.name = text(),
            b"Black" => game.black.name = text(),
            b"WhiteTitle" => game.white.title = text(),
            b"BlackTitle" => game.black.title = text(),
            b"WhiteElo" => game.white.rating = text().parse().ok(),
            b"BlackElo" => game.black.rating = text().parse().ok(),
            b"TimeControl" => game.time_control = text().parse().ok(),
            b"Variant" => tags.variant = Some(text()),
            b"FEN" => tags.set_up = true,
            b"Result" => tags.result = Outcome::from_ascii(value.as_bytes()).ok(),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn begin_movetext(&mut self, tags: Tags) -> ControlFlow<Verdict, Movetext> {
        let drop = |reason, detail: String| ControlFlow::Break(Err(dropped(&tags.game, reason, detail)));
        if let Some(variant) = tags.variant.as_deref().filter(|name| !is_standard(name)) {
            return drop(Reason::Variant, variant.to_owned());
        }
        if tags.set_up {
            return drop(Reason::SetUpPosition, String::new());
        }
        match tags.result {
            Some(Outcome::Known(_)) => {}
            Some(Outcome::Unknown) | None => return drop(Reason::NoResult, String::new()),
        }
        if let Some(reason) = self.filter.tags(&tags.game) {
            return drop(reason, String::new());
        }
        ControlFlow::Continue(Movetext { tags, position: Chess::default() })
    }

    fn san(&mut self, text: &mut Movetext, san: SanPlus) -> ControlFlow<Verdict> {
        let game = &mut text.tags.game;
        match san.san.to_move(&text.position) {
            Ok(mv) => {
                game.moves.push(pack(mv));
                game.clocks.push(None);
                text.position.play_unchecked(mv);
                ControlFlow::Continue(())
            }
            Err(error) => {
                let detail = format!("ply {}: {} is not a legal move ({error})", game.moves.len(), san.san);
                ControlFlow::Break(Err(dropped(game, Reason::BrokenMoves, detail)))
            }
        }
    }

    fn comment(&mut self, text: &mut Movetext, comment: RawComment<'_>) -> ControlFlow<Verdict> {
        if let (Some(clock), Some(last)) = (clk::find(comment.as_bytes()), text.tags.game.clocks.last_mut()) {
            *last = Some(clock);
        }
        ControlFlow::Continue(())
    }

    fn begin_variation(&mut self, _: &mut Movetext) -> ControlFlow<Verdict, Skip> {
        ControlFlow::Continue(Skip(true))
    }

    fn end_game(&mut self, text: Movetext) -> Verdict {
        let Tags { mut game, result, .. } = text.tags;
        if let Some(Outcome::Known(KnownOutcome::Decisive { winner })) = result {
            game.winner = Some(winner);
        }
        if game.clocks.iter().all(Option::is_none) {
            game.clocks.clear();
        }
        match self.filter.moves(&game) {
            Some(reason) => {
                let detail = format!("{} plies", game.moves.len());
                Err(dropped(&game, reason, detail))
            }
            None => Ok(game),
        }
    }
}

fn is_standard(variant: &str) -> bool {
    ["standard", "chess", "normal", "from position", ""].contains(&variant.to_ascii_lowercase().as_str())
}

fn dropped(game: &GameRecord, reason: Reason, detail: String) -> Dropped {
    let name = |player: &Player| if player.name.is_empty() { "?".to_owned() } else { player.name.clone() };
    let game = if game.id.is_empty() {
        format!("{} - {}", name(game.player(Color::White)), name(game.player(Color::Black)))
    } else {
        game.id.clone()
    };
    Dropped { reason, game, detail }
}
