//! Horizontal bar charts as SVG. Lengths are proportional to the values; the axis begins at 0.

use std::fmt::Write;

use super::html::escape;

/// Colour of spind.
pub const OURS: &str = "#1f6feb";
/// Colour of a peer.
pub const PEER: &str = "#8c959f";
/// Colours of several variants or numbers of threads.
pub const VARIANTS: [&str; 6] = ["#1f6feb", "#e8820c", "#2da44e", "#a475f9", "#c9519b", "#6e7781"];

const WIDTH: f64 = 960.0;
/// Room for the names of bars: 28 characters.
const LEFT: f64 = 220.0;
/// Length of the longest bar.
const PLOT: f64 = 500.0;
const TOP: f64 = 30.0;
const BAR: f64 = 16.0;
const STEP: f64 = 23.0;
const BOTTOM: f64 = 46.0;
/// Average width of a character of 13 px, at most.
const CHARACTER: f64 = 7.5;
const INK: &str = "#1b1f24";

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name to its left.
    pub label: String,
    /// Its length, in the unit of the axis.
    pub value: f64,
    /// Lowest and highest round: the ends of the whisker.
    pub spread: Option<[f64; 2]>,
    /// Its colour.
    pub colour: &'static str,
    /// Text to its right.
    pub text: String,
}

/// Bars with a common heading. An empty name: no heading.
#[derive(Clone, Debug)]
pub struct Group {
    /// The heading.
    pub name: String,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// A bar chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title, which says whose the figures are. It is not drawn: a heading of the page shows it.
    pub title: String,
    /// Text below the axis, with the unit.
    pub axis: String,
    /// Colours and their meaning.
    pub legend: Vec<(&'static str, &'static str)>,
    /// Value at which a dashed line crosses all bars.
    pub reference: Option<f64>,
    /// The bars.
    pub groups: Vec<Group>,
}

impl Chart {
    /// Draws the chart.
    #[must_use]
    pub fn svg(&self) -> String {
        let heading = |group: &Group| usize::from(!group.name.is_empty());
        let lines: usize = self.groups.iter().map(|group| group.bars.len() + heading(group)).sum();
        let (bottom, most) = (TOP + lines as f64 * STEP, self.most());
        let height = bottom + BOTTOM;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"{INK}\">\n"
        );
        let _ = writeln!(svg, "<title>{}</title>", escape(&self.title));
        self.draw_legend(&mut svg);
        draw_axis(&mut svg, most, bottom);
        text(&mut svg, (LEFT + PLOT / 2.0, bottom + 38.0), "middle", "", &self.axis);
        if let Some(value) = self.reference {
            let x = place(value, most);
            let _ = writeln!(
                svg,
                "<line class=\"reference\" x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"{INK}\" stroke-dasharray=\"4 3\"/>"
            );
        }
        let mut y = TOP;
        for group in &self.groups {
            if !group.name.is_empty() {
                text(&mut svg, (0.0, y + 14.0), "start", "font-weight=\"600\"", &group.name);
                y += STEP;
            }
            for bar in &group.bars {
                draw_bar(&mut svg, bar, most, y);
                y += STEP;
            }
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// The greatest value to show.
    fn most(&self) -> f64 {
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        let ends = bars.flat_map(|bar| [bar.value, bar.spread.map_or(0.0, |[_, high]| high)]);
        let most = ends.chain(self.reference).filter(|end| end.is_finite()).fold(0.0, f64::max);
        if most > 0.0 { most } else { 1.0 }
    }

    fn draw_legend(&self, svg: &mut String) {
        let mut x = LEFT;
        for (colour, name) in &self.legend {
            let _ =
                writeln!(svg, "<rect class=\"key\" x=\"{x}\" y=\"6\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
            text(svg, (x + 17.0, 17.0), "start", "", name);
            x += 40.0 + CHARACTER * name.chars().count() as f64;
        }
    }
}

/// Place of a value on the axis.
fn place(value: f64, most: f64) -> f64 {
    LEFT + value / most * PLOT
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, attributes: &str, text: &str) {
    let text = escape(text);
    let _ = writeln!(svg, "<text x=\"{x:.2}\" y=\"{y:.2}\" text-anchor=\"{anchor}\" {attributes}>{text}</text>");
}

/// Distance of the ticks: 1, 2 or 5 times a power of ten, with at most six ticks.
fn tick_distance(most: f64) -> f64 {
    let power = 10_f64.powf((most / 6.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| most / step <= 6.0).unwrap_or(most)
}

fn draw_axis(svg: &mut String, most: f64, bottom: f64) {
    let distance = tick_distance(most);
    let decimals = (-distance.log10().floor()).max(0.0) as usize;
    let mut tick = 0;
    while f64::from(tick) * distance <= most * 1.001 {
        let value = f64::from(tick) * distance;
        let x = place(value, most);
        let _ = writeln!(svg, "<line x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#d8dee4\"/>");
        text(svg, (x, bottom + 17.0), "middle", "", &format!("{value:.decimals$}"));
        tick += 1;
    }
}

fn draw_bar(svg: &mut String, bar: &Bar, most: f64, y: f64) {
    let middle = y + BAR / 2.0;
    text(svg, (LEFT - 8.0, middle + 4.5), "end", "", &bar.label);
    let value = if bar.value.is_finite() { bar.value } else { 0.0 };
    let (width, colour) = (place(value, most) - LEFT, bar.colour);
    let _ = writeln!(
        svg,
        "<rect class=\"bar\" x=\"{LEFT}\" y=\"{y}\" width=\"{width:.2}\" height=\"{BAR}\" fill=\"{colour}\"/>"
    );
    let mut end = LEFT + width;
    if let Some([low, high]) = bar.spread.filter(|spread| spread.iter().all(|end| end.is_finite())) {
        let (from, to) = (place(low, most), place(high, most));
        end = end.max(to);
        let _ = writeln!(
            svg,
            "<line class=\"whisker\" x1=\"{from:.2}\" x2=\"{to:.2}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"{INK}\" stroke-width=\"1.5\"/>"
        );
        for x in [from, to] {
            let (top, bottom) = (middle - 4.0, middle + 4.0);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"{INK}\" stroke-width=\"1.5\"/>"
            );
        }
    }
    // A white background covers the lines of the axis behind the text.
    let room = 2.0 + CHARACTER * bar.text.chars().count() as f64;
    let _ = writeln!(
        svg,
        "<rect class=\"back\" x=\"{:.2}\" y=\"{y}\" width=\"{room:.2}\" height=\"{BAR}\" fill=\"#fff\"/>",
        end + 7.0
    );
    text(svg, (end + 8.0, middle + 4.5), "start", "", &bar.text);
}

#[cfg(test)]
mod tests {
    use super::{Bar, CHARACTER, Chart, Group, LEFT, OURS, PLOT, WIDTH, tick_distance};

    fn bar(label: &str, value: f64, spread: Option<[f64; 2]>) -> Bar {
        Bar { label: label.to_owned(), value, spread, colour: OURS, text: format!("{value} <Mpps>") }
    }

    fn chart(bars: Vec<Bar>) -> String {
        let groups = vec![Group { name: String::new(), bars }];
        Chart {
            title: "<t>".to_owned(),
            axis: "Mpps".to_owned(),
            legend: vec![(OURS, "spind")],
            reference: None,
            groups,
        }
        .svg()
    }

    /// Values of attributes of the elements with a class.
    fn attributes<const N: usize>(svg: &str, class: &str, names: [&str; N]) -> Vec<[f64; N]> {
        let elements = svg.lines().filter(|line| line.contains(&format!("class=\"{class}\"")));
        let value = |line: &str, name: &str| {
            let rest = line.split_once(&format!(" {name}=\"")).expect("an attribute").1;
            rest.split('"').next().and_then(|text| text.parse().ok()).expect("a number")
        };
        elements.map(|line| names.map(|name| value(line, name))).collect()
    }

    #[test]
    fn lengths_are_proportional_to_values() {
        let svg = chart(vec![bar("a", 2.0, None), bar("b", 1.0, None), bar("c", 0.5, Some([0.25, 4.0]))]);
        let bars = attributes(&svg, "bar", ["x", "width"]);
        for ([x, width], value) in bars.iter().zip([2.0, 1.0, 0.5]) {
            assert!((x - LEFT).abs() < 0.01 && (width - PLOT * value / 4.0).abs() < 0.01, "{svg}");
        }
        assert_eq!(bars.len(), 3);
    }

    #[test]
    fn whiskers_reach_from_the_lowest_to_the_highest_round() {
        let svg = chart(vec![bar("a", 2.0, Some([1.0, 4.0])), bar("b", 1.0, None)]);
        let whiskers = attributes(&svg, "whisker", ["x1", "x2"]);
        assert_eq!(whiskers, [[LEFT + PLOT / 4.0, LEFT + PLOT]]);
    }

    #[test]
    fn texts_are_escaped_and_fit() {
        let svg = chart(vec![bar("kernel UDP socket, <blocking>", 1.0, None)]);
        assert!(svg.contains("&lt;t&gt;") && svg.contains("&lt;Mpps&gt;") && svg.contains("&lt;blocking&gt;"), "{svg}");
        const { assert!(28.0 * CHARACTER < LEFT && LEFT + PLOT + 8.0 + 30.0 * CHARACTER < WIDTH) };
    }

    #[test]
    fn a_bar_without_a_figure_is_empty() {
        let svg = chart(vec![bar("a", f64::NAN, Some([f64::NAN; 2])), bar("b", 0.0, None)]);
        assert_eq!(attributes(&svg, "bar", ["width"]), [[0.0], [0.0]]);
        assert!(!svg.replace("NaN &lt;", "").contains("NaN"), "{svg}");
    }

    #[test]
    fn ticks_are_round_numbers() {
        for (most, distance) in [(0.73, 0.2), (6.0, 1.0), (7.0, 2.0), (120.0, 20.0), (1.0, 0.2)] {
            let found = tick_distance(most);
            assert!((found - distance).abs() < 1e-9, "{most}: {found}");
        }
    }
}
