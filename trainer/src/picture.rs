//! Pictures of what people would rather see than read, as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// A named line.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What it shows.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Draws panels side by side: title, name of the horizontal quantity, curves.
///
/// # Errors
///
/// When the file cannot be written.
pub fn curves(path: &Path, panels: &[(&str, &str, Vec<Curve>)]) -> Result<()> {
    let width = 480 * panels.len().max(1) as u32;
    let root = SVGBackend::new(path, (width, 320)).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    for (area, (title, x, curves)) in root.split_evenly((1, panels.len().max(1))).iter().zip(panels) {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let (left, right) = range(points().map(|point| point.0));
        let (low, high) = range(points().map(|point| point.1));
        let mut chart = ChartBuilder::on(area)
            .caption(*title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(left..right, low..high)
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_desc(*x)
            .x_labels(5)
            .x_label_formatter(&thousands)
            .light_line_style(WHITE)
            .draw()
            .map_err(drawing)?;
        for (number, curve) in curves.iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            chart
                .draw_series(LineSeries::new(curve.points.iter().copied(), color.stroke_width(2)))
                .map_err(drawing)?
                .label(curve.name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw().map_err(drawing)?;
    }
    root.present().map_err(drawing)
}

/// A count in thousands or millions.
fn thousands(count: &f64) -> String {
    match *count {
        n if n >= 1e6 => format!("{:.1}M", n / 1e6),
        n if n >= 1e3 => format!("{:.0}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// Lowest and highest value, never the same.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if low < high { (low, high) } else { (low.clamp(-1e9, 0.0), low.abs().min(1e9) + 1.0) }
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

/// A panel with a line for each series.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Heading.
    pub title: String,
    /// What stands under each point.
    pub labels: Vec<String>,
    /// The values of each series, in the order of the labels.
    pub lines: Vec<Vec<f64>>,
}

/// A square of percentages, each series against each.
#[derive(Clone, Debug)]
pub struct Map {
    /// Heading.
    pub title: String,
    /// The rows.
    pub values: Vec<Vec<f64>>,
}

/// Draws panels of lines under each other, and a map under them.
///
/// # Errors
///
/// When the file cannot be written.
pub fn lines_and_map(path: &Path, series: &[String], panels: &[Lines], map: &Map) -> Result<()> {
    let below = 140 + 34 * series.len() as u32;
    let above = 380 * panels.len() as u32;
    let root = SVGBackend::new(path, (900, above + below)).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    let (upper, lower) = root.split_vertically(above);
    for (area, panel) in upper.split_evenly((panels.len().max(1), 1)).iter().zip(panels) {
        lines(area, series, panel)?;
    }
    square(&lower, series, map)?;
    root.present().map_err(drawing)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn lines(area: &Area<'_>, series: &[String], panel: &Lines) -> Result<()> {
    let values = || panel.lines.iter().flatten().copied();
    let (low, high) = range(values());
    let margin = 0.05 * (high - low);
    // A quarter more than the points need, for the names of the series.
    let room = 1.25 * panel.labels.len().max(1) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(44)
        .build_cartesian_2d(-0.5..room, low - margin..high + margin)
        .map_err(drawing)?;
    let label = |x: &f64| match x.fract() == 0.0 && *x >= 0.0 {
        true => panel.labels.get(*x as usize).cloned().unwrap_or_default(),
        false => String::new(),
    };
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_labels(panel.labels.len() + 2)
        .x_label_formatter(&label)
        .draw()
        .map_err(drawing)?;
    for (number, (name, line)) in series.iter().zip(&panel.lines).enumerate() {
        let style = color(number, series.len()).stroke_width(2);
        let points = (0u32..).map(f64::from).zip(line.iter().copied());
        chart
            .draw_series(LineSeries::new(points, style))
            .map_err(drawing)?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw().map_err(drawing)
}

/// The color of a series among many: around the wheel once.
fn color(number: usize, of: usize) -> HSLColor {
    HSLColor(number as f64 / of.max(1) as f64, 0.7, 0.45)
}

fn square(area: &Area<'_>, series: &[String], map: &Map) -> Result<()> {
    let area = area.titled(&map.title, ("sans-serif", 18)).map_err(drawing)?;
    let (low, high) = range(map.values.iter().flatten().copied());
    let (left, top, width, height) = (150, 30, 56, 30);
    let text = |color: RGBColor| ("sans-serif", 13).into_font().color(&color);
    for ((row, name), values) in (0..).zip(series).zip(&map.values) {
        let y = top + row * height;
        area.draw(&Text::new(name.clone(), (8, y + 8), text(BLACK))).map_err(drawing)?;
        let head: String = name.chars().skip(name.chars().count().saturating_sub(8)).collect();
        area.draw(&Text::new(head, (left + row * width + 2, top - 18), text(BLACK))).map_err(drawing)?;
        for (column, value) in (0..).zip(values) {
            let share = (value - low) / (high - low);
            let x = left + column * width;
            let fill = RGBColor(33, 102, 172).mix(0.1 + 0.85 * share).filled();
            area.draw(&Rectangle::new([(x, y), (x + width - 2, y + height - 2)], fill)).map_err(drawing)?;
            let ink = if share > 0.5 { WHITE } else { BLACK };
            area.draw(&Text::new(format!("{value:.1}"), (x + 12, y + 8), text(ink))).map_err(drawing)?;
        }
    }
    Ok(())
}

/// Width of a panel of grouped values without its labels, in pixels.
const PLOT: f64 = 836.0;

/// A panel of grouped values with intervals.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Heading.
    pub title: String,
    /// Label of each group, and for each series a value with its interval where there is one.
    pub groups: Vec<(String, Vec<Option<Interval>>)>,
}

/// A value and the ends of its interval.
pub type Interval = (f64, [f64; 2]);

/// Draws panels under each other: a dot with an interval for every group and series.
///
/// # Errors
///
/// When the file cannot be written.
pub fn bars(path: &Path, series: &[String], panels: &[Bars]) -> Result<()> {
    let root = SVGBackend::new(path, (900, 300 * panels.len().max(1) as u32)).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    for (area, panel) in root.split_evenly((panels.len().max(1), 1)).iter().zip(panels) {
        let ends = || {
            panel.groups.iter().flat_map(|group| group.1.iter().flatten()).flat_map(|(_, ends)| ends.iter().copied())
        };
        let (low, high) = range(ends());
        let margin = 0.1 * (high - low);
        // A fifth more than the groups need, for the names of the series.
        let room = if series.len() > 1 { 1.2 } else { 1.0 } * panel.groups.len().max(1) as f64;
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..room, low - margin..high + margin)
            .map_err(drawing)?;
        let label = |x: &f64| panel.groups.get(*x as usize).map(|group| group.0.clone()).unwrap_or_default();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_labels(panel.groups.len() + 1)
            // A group's name stands under its middle.
            .x_label_offset((PLOT / room / 2.0) as i32)
            .x_label_formatter(&label)
            .draw()
            .map_err(drawing)?;
        for (number, name) in series.iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let shift = (number as f64 + 1.0) / (series.len() as f64 + 1.0);
            let values = (0u32..).zip(&panel.groups).filter_map(|(group, (_, values))| {
                values.get(number).copied().flatten().map(|value| (f64::from(group) + shift, value))
            });
            let marks = values.clone().map(|(x, (value, _))| Circle::new((x, value), 4, color.filled()));
            let lines =
                values.map(|(x, (_, [from, to]))| PathElement::new([(x, from), (x, to)], color.stroke_width(2)));
            chart.draw_series(lines).map_err(drawing)?;
            chart
                .draw_series(marks)
                .map_err(drawing)?
                .label(name.as_str())
                .legend(move |(x, y)| Circle::new((x + 8, y), 4, color.filled()));
        }
        if series.len() > 1 {
            chart
                .configure_series_labels()
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK)
                .draw()
                .map_err(drawing)?;
        }
    }
    root.present().map_err(drawing)
}
