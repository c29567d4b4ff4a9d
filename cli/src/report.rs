//! `counterfoil report`: a job's log directory as a page with pictures.

mod figures;
mod job;
mod log_only;
mod out;
mod page;
mod pictures;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use indicatif::{BinaryBytes, HumanCount};

use crate::{Failure, print};
use figures::Figures;
pub(crate) use figures::{named, without_numbers};
use job::{JobError, JobProfile};
use out::{OutError, Place};
use pictures::Picture;

/// Draw what a job did: one page, for a browser, that needs no network, and its pictures as SVG files beside it.
///
/// Who sent how much to whom, how the logs grew, how long messages were and how long they waited for their acknowledgement, collective operations by
/// kind, a table with a line for each rank, and the job's settings. It reads what `counterfoil run --log-dir DIR` leaves. Of a rank without a profile
/// (it was killed, or the directory is that of a demo) it shows what its log still has, and says so.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// The directory with the ranks' logs
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where the page goes: a file that ends with .html, or a folder, which is made if it isn't there [default: DIR/report]
    #[arg(long, value_name = "FOLDER|FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object with the figures
    #[arg(long)]
    pub(crate) json: bool,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Out(#[from] OutError),
    #[error("the picture `{name}` can't be drawn: {why}")]
    Draw { name: &'static str, why: String },
}

pub(crate) fn run(arguments: &ReportArguments) -> Result<ExitCode, Failure> {
    let (figures, files) = report(&arguments.dir, arguments.out.as_deref()).map_err(Failure::failed)?;
    if arguments.json {
        print(&figures.to_json(&files).to_string())?;
    } else {
        print(&as_text(&figures, &files))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the page and the pictures; gives the files, the page first.
fn report(dir: &Path, out: Option<&Path>) -> Result<(Figures, Vec<PathBuf>), ReportError> {
    let figures = Figures::of(JobProfile::read(dir)?);
    let mut pictures = Vec::new();
    for picture in Picture::ALL {
        let drawn = picture.draw(&figures);
        let svg = drawn.map_err(|error| ReportError::Draw { name: picture.name(), why: error.to_string() })?;
        pictures.extend(svg.map(|svg| (picture, svg)));
    }
    let place = Place::new(out.map_or_else(|| dir.join("report"), Path::to_owned));
    let page = page::render(&figures, &pictures);
    Ok((figures, place.write(&page, &pictures)?))
}

fn as_text(figures: &Figures, files: &[PathBuf]) -> String {
    let total = figures.logged();
    let (messages, bytes) = (HumanCount(total.messages), BinaryBytes(total.bytes));
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let mut lines = vec![format!(
        "{}: {} rank{}, {messages} message{} logged ({bytes}){}",
        figures.name(),
        figures.ranks(),
        plural(figures.ranks().into()),
        plural(total.messages),
        figures.given()
    )];
    lines.extend(figures.notes().iter().map(|note| format!("note: {note}")));
    lines.extend(files.iter().map(|file| file.display().to_string()));
    lines.join("\n")
}
