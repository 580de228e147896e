//! What is found in documents and style sheets.

use super::*;

const PAGE: &str = "http://page.test/dir/index.html";

/// What a document and its style sheets name: `kind path`, in order.
fn found(html: &str, sheets: &[&str]) -> Vec<String> {
    let mut discovery = Discovery::default();
    let url = Url::parse(PAGE).unwrap();
    let document = RequestId(0);
    discovery.begin(document, Kind::Document, &url, Some("text/html; charset=utf-8"));
    // Cut into single bytes, so within characters and tags too.
    let mut all: Vec<Found> =
        html.as_bytes().chunks(1).flat_map(|byte| discovery.feed(document, byte)).collect();
    all.extend(discovery.end(document));
    all.extend(discovery.used(!sheets.is_empty()));
    for (number, text) in sheets.iter().enumerate() {
        let (request, last) = (RequestId(number as u32 + 1), number + 1 == sheets.len());
        let url = Url::parse("http://page.test/css/a.css").unwrap();
        discovery.begin(request, Kind::Stylesheet, &url, Some("text/css"));
        discovery.feed(request, text.as_bytes());
        all.extend(discovery.end(request));
        all.extend(discovery.used(!last));
    }
    let label = |one: Found| {
        let url = one.url.map_or_else(|| format!("malformed {}", one.text), |url| url.to_string());
        format!("{:?} {}", one.kind, url.trim_start_matches("http://page.test"))
    };
    all.into_iter().map(label).collect()
}

/// What a style sheet names for this body.
fn styled(body: &str, css: &str) -> Vec<String> {
    found(&format!("<!doctype html><html><body>{body}"), &[css])
}

#[test]
fn tags_name_resources_relative_to_the_base() {
    let html = "<head><link rel='STYLESHEET' href=a.css><base href=/other/><base href=/third/>
        <script src=é.js></script><script type=text/template src=no.js></script>
        <link rel=preload as=font href=f.woff2><link rel=modulepreload href=m.mjs></head>
        <body><img src=i.png><picture><img srcset='s.png 1x, l.png 2x' src=old.png></picture>
        <video poster=p.jpg src=v.mp4></video><input type=image src=b.png>
        <!-- <img src=comment.png> --><textarea><img src=text.png></textarea>
        <script>'<img src=string.png>'</script><noscript><img src=none.png></noscript>
        <template><img src=template.png></template><img src='data:image/gif;base64,R0=='>
        <img src='http://['>";
    let expected = [
        "Stylesheet /dir/a.css",
        "Script /other/%C3%A9.js",
        "Font /other/f.woff2",
        "Script /other/m.mjs",
        "Image /other/i.png",
        "Image /other/s.png",
        "Image /other/p.jpg",
        "Image /other/b.png",
        "Image malformed http://[",
    ];
    assert_eq!(found(html, &[]), expected);
}

#[test]
fn a_style_sheet_for_print_is_asked_for_and_not_read() {
    let html = "<link rel=stylesheet media=print href=p.css><link rel=stylesheet href=s.css>";
    assert_eq!(found(html, &[]), ["Other /dir/p.css", "Stylesheet /dir/s.css"]);
}

#[test]
fn imports_are_found_unless_they_are_for_another_medium() {
    let css = "@import 'one.css'; @import url(two.css) screen; @import url(\"three.css\") print;
        @import 'four.css' layer(base) supports(display: grid) (min-width: 100px);
        @import 'five.css' screen and (max-width: 100px); @import 'six.css'layer;
        /* @import 'comment.css'; */ a { content: \"@import 'string.css'\" }";
    let sheets = ["/css/one.css", "/css/two.css", "/css/four.css", "/css/six.css"];
    assert_eq!(styled("", css), sheets.map(|sheet| format!("Stylesheet {sheet}")));
}

#[test]
fn images_are_asked_for_if_an_element_matches_their_rule() {
    let image = |css: &str| !styled("<p class=a><b id=x>t</b></p>", css).is_empty();
    for css in [
        "p { background: url(i.png) }",
        "h1, .a { background-image: url('i.png') }",
        ":is(h1, .a) b { background-image: url('i.png') }",
        "h1, :not(.b, .c)#x { background: image-set(url(i.png) 1x, url(j.png) 2x) }",
        "p::before { content: url(i.png) }",
        "::selection, p:after { list-style: square url(i.png) }",
        "@media(min-width:600px){p{background:url(i.png)}}",
        "h1:is(h1,h2),p:not(h1,h2){background:url(i.png)}",
        "@media screen { @supports (display: grid) { p { mask: url(i.png) } } }",
        ".a { color: red; & b { background: url(i.png) } }",
        "h2, .a { b { background: url(i.png) } }",
        ":root { background: url(i.png) }",
        ":unknown(x), p { background: url(i.png) }",
        "x { } } p { background: url(i.png) }",
    ] {
        assert!(image(css), "{css}");
    }
    for css in [
        "h1 { background: url(i.png) }",
        "p:hover { background: url(i.png) }",
        "@media(max-width:600px){p{background:url(i.png)}}",
        "@media print { p { background: url(i.png) } }",
        "p { background: url(data:image/png;base64,AA==) }",
        "p { --x: url(i.png); cursor: url(c.cur), auto }",
        ".a > i { background: url(i.png) }",
        "p { background: 'i.png' }",
    ] {
        assert!(!image(css), "{css}");
    }
}

#[test]
fn a_font_is_asked_for_if_an_element_has_its_family() {
    let face = "@font-face { font-family: 'My Font'; src: url(f.eot);
        src: url(f.eot?#iefix) format('embedded-opentype'), url(f.woff2) format('woff2') }";
    let font = |rest: &str| styled("<p>t</p>", &format!("{face} {rest}"));
    for rest in [
        "p { font-family: Arial, \"MY FONT\", serif }",
        "p { font: bold 12px/1.5 My Font }",
        ":root { --text: 'My Font' }",
    ] {
        assert_eq!(font(rest), ["Font /css/f.woff2"], "{rest}");
    }
    for rest in ["", "h1 { font-family: 'My Font' }", "p { font-family: My }"] {
        assert!(font(rest).is_empty(), "{rest}");
    }
    let cyrillic = "@font-face { font-family: C; src: url(c.woff2); unicode-range: U+0400-045F }
        p { font-family: C }";
    assert!(styled("<p>t</p>", cyrillic).is_empty());
}

#[test]
fn a_document_that_grows_when_it_is_read_has_all_rules_used() {
    // Elements that are not closed are opened anew in each paragraph: 400 × 400 of them.
    let mut html = "<p>".to_owned();
    for number in 0..800 {
        html.push_str(&format!("<b a{number}>"));
    }
    html.push_str(&"</p><p>x".repeat(400));
    let images =
        used(&html, &[&Sheet::read("x { background: url(i.png) }", &Url::parse(PAGE).unwrap())]);
    assert_eq!(images.len(), 1);
}

#[test]
fn deep_documents_and_many_rules_take_bounded_steps() {
    let html = "<div>".repeat(1_000);
    let mut css = String::new();
    for number in 0..800 {
        css.push_str(&format!("a b c div d{number} {{ background: url({number}.png) }}\n"));
    }
    let sheet = Sheet::read(&css, &Url::parse(PAGE).unwrap());
    // About 400 rules fit in the steps; none of them matches. All others count as used.
    let images = used(&html, &[&sheet]).len();
    assert!((1..800).contains(&images), "{images}");
    // Deeper than any browser's tree: not even parsed to its end.
    assert_eq!(used(&"<div>".repeat(90_000), &[&sheet]).len(), 800);
}
