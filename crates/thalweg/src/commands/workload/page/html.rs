//! The page's text: what stands in it is other people's, and none of it is taken for markup.

/// As text between tags, or within quotes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:84em;padding:0 1em;\
background:#fff;color:#222}h2{margin-top:2em}svg{width:100%;max-width:44em;height:auto}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(24em,1fr));gap:1em}\
.title{font-weight:600;font-size:14px}.axis,.tick{font-size:12px}svg text{fill:#222}\
.grid{stroke:#ddd;fill:none}.spread{stroke:#222;stroke-width:1.5;fill:none}.line{stroke-width:1.8;fill:none}\
table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}\
th,td{padding:.2em .6em;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}\
th.text,td.text{text-align:left}td.bad{color:#b00020;font-weight:600}.key{display:inline-block;width:.9em;height:.9em;\
margin-right:.4em;vertical-align:-.1em}\
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}svg text{fill:#ddd}.spread{stroke:#ddd}\
.grid,th,td{border-color:#444;stroke:#444}td.bad{color:#ff6b6b}}";

/// A whole page, which loads nothing.
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{body}</body></html>\n"
    )
}

/// A cell of a table.
pub struct Cell {
    text: String,
    class: &'static str,
}

impl Cell {
    /// A number, or a dash.
    pub fn number(value: Option<String>) -> Self {
        Self {
            text: value.unwrap_or_else(|| "-".to_owned()),
            class: "",
        }
    }

    /// A count that should be 0.
    pub fn fault(count: u64) -> Self {
        Self {
            text: count.to_string(),
            class: if count > 0 { "bad" } else { "" },
        }
    }

    /// Words.
    pub fn text(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            class: "text",
        }
    }
}

/// A table.
pub fn table(header: &[&str], rows: &[Vec<Cell>]) -> String {
    let mut html = "<table><thead><tr>".to_owned();
    for name in header {
        html.push_str(&format!("<th>{}</th>", escape(name)));
    }
    html.push_str("</tr></thead><tbody>\n");
    for row in rows {
        html.push_str("<tr>");
        for Cell { text, class } in row {
            html.push_str(&format!("<td class=\"{class}\">{}</td>", escape(text)));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table>\n");
    html
}
