//! What the figures depend on: machine, method and commands.

use super::html::{Table, escape, heading, paragraph};
use super::source::Inputs;

const METHOD: [&str; 3] = [
    "Variants and programs of one bench run in interleaved rounds, so that a slow period of the machine affects all of them.",
    "A bar shows the median of the rounds, and its whisker reaches from the lowest to the highest round.",
    "A round on the wire counts as disturbed if other machines took processor time or other programs were running; the number of disturbed rounds stands beside the bar.",
];

/// Formats the head of the page.
#[must_use]
pub fn head(inputs: &Inputs) -> String {
    let mut html = machine(inputs);
    html.push_str(&heading("Method"));
    html.push_str(&paragraph(&METHOD.join(" ")));
    html.push_str(&paragraph(
        "Each table and plot says whose a figure is: “ours” and “peer” were measured in this run, “published” stands in a paper and was \
         measured or simulated on other hardware. Compare ratios of one run; other machines give other figures.",
    ));
    let mut table = Table::new("Commands", &[("section", None), ("command", None), ("results file", None)]);
    let wire = inputs.wire.get().map_or("spin-bench-wire", |results| &results.command);
    for (section, command, path) in [
        ("wire", wire, &inputs.wire.path),
        ("engine in memory", "spin-bench-engine --rounds 5 --packets 300000", &inputs.engine.path),
        ("handlers, budget", "spin-bench-handlers --rounds 5", &inputs.handlers.path),
    ] {
        table.row([section, command, path].map(str::to_owned).to_vec());
    }
    html.push_str(&table.html());
    for missing in inputs.missing() {
        html.push_str(&format!("<p class=\"missing\">{}</p>\n", escape(&missing)));
    }
    html
}

fn machine(inputs: &Inputs) -> String {
    let Some(results) = inputs.wire.get() else {
        return paragraph("Machine, commit and date are not recorded: they stand in the results of the wire.");
    };
    let machine = &results.machine;
    let mut table = Table::new("Machine", &[("", None), ("of the results on the wire", None)]);
    for (name, value) in [
        ("processor", machine.processor.clone()),
        ("cores", machine.cores.to_string()),
        ("kernel", machine.kernel.clone()),
        ("commit", machine.commit.clone()),
        ("date", machine.date.clone()),
    ] {
        table.row(vec![name.to_owned(), value]);
    }
    let note =
        "The other results files name no machine and no commit. A commit with “+” had changes in the working tree.";
    table.html() + &paragraph(note)
}
