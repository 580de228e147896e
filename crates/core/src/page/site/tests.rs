use super::super::resource::Priority;
use super::*;

fn page() -> MadePage {
    MadePage {
        resources: 20,
        kind: Kind::Stylesheet,
        resource_bytes: 1_000,
        page_bytes: 5_000,
        page_time_ns: 0,
        resource_time_ns: 0,
        shards: Vec::new(),
        tls: false,
        port: 80,
    }
}

fn text(file: &File) -> String {
    String::from_utf8(file.content.made()).unwrap()
}

#[test]
fn a_made_page_has_a_document_that_names_each_resource_once_and_files_of_the_sizes_asked_for() {
    for kind in [Kind::Stylesheet, Kind::Script, Kind::Image, Kind::Font] {
        let site = Site::of_page(&MadePage { kind, ..page() }).unwrap();
        assert_eq!(site.files.len(), 21);
        let document = text(&site.files[0]);
        assert_eq!(document.len(), 5_000, "{kind:?}");
        assert!(document.contains("<link rel=icon href=data:,>"));
        for file in &site.files[1..] {
            assert_eq!(document.matches(&file.path).count(), 1, "{}", file.path);
            assert_eq!(text(file).len(), 1_000);
            assert_eq!(file.content.bytes(), 1_000);
        }
        assert!(!site.is_dynamic());
    }
}

#[test]
fn a_page_smaller_than_its_own_markup_is_as_small_as_it_can_be() {
    let small = MadePage { kind: Kind::Image, page_bytes: 0, resource_bytes: 0, ..page() };
    let site = Site::of_page(&small).unwrap();
    assert!(text(&site.files[0]).ends_with("</body></html>\n"));
    let image = text(&site.files[1]);
    assert!(image.starts_with("<svg ") && image.ends_with("></svg>"), "{image}");
    assert_eq!(site.files[1].content.bytes(), image.len() as u64);
}

#[test]
fn made_css_is_whole_rules_and_space() {
    let css = Content::Made { kind: Kind::Stylesheet, bytes: 777 };
    let css = String::from_utf8(css.made()).unwrap();
    assert_eq!(css.len(), 777);
    assert!(css.trim_end().ends_with('}'));
    assert_eq!(css.matches('{').count(), css.matches('}').count());
}

#[test]
fn resources_are_spread_over_the_shards_in_turn() {
    let shards = ["a.test", "b.test"].map(str::to_owned).to_vec();
    let site = Site::of_page(&MadePage { shards, port: 8080, ..page() }).unwrap();
    let document = text(&site.files[0]);
    assert!(document.contains("\"http://a.test:8080/r/1.css\""), "{document}");
    assert_eq!(document.matches("http://b.test:8080/r/").count(), 10);
    assert_eq!(site.names.len(), 2);
}

#[test]
fn a_graph_is_replayed_with_a_host_per_origin_and_names_that_are_made() {
    let resource = |url: &str, kind, body_bytes| Resource {
        url: url.to_owned(),
        kind,
        body_bytes,
        server_us: 1_500,
        status: 304,
        priority: Priority::High,
        ..Resource::default()
    };
    let graph = Graph {
        resources: vec![
            resource("https://example.org/../../etc?x\r\n", Kind::Document, 10),
            resource("https://cdn.example.org:444/a.css", Kind::Stylesheet, 20),
            resource("https://example.org#b", Kind::Image, 30),
        ],
    };
    let Replayed { site, graph, origins } = Site::of_graph(&graph, true, 443).unwrap();
    assert_eq!(site.names, ["h0.test", "h1.test"]);
    assert_eq!(origins[1], ("h1.test".to_owned(), "https://cdn.example.org:444".to_owned()));
    let urls: Vec<&str> = graph.resources.iter().map(|one| one.url.as_str()).collect();
    let expected =
        ["https://h0.test/index.html", "https://h1.test/r/1.css", "https://h0.test/r/2.svg"];
    assert_eq!(urls, expected);
    assert_eq!(site.bytes(), 60);
    assert_eq!(site.files[0].server_time_ns, 1_500_000);
    assert!(graph.resources.iter().all(|one| one.status == 200));
    assert!(Site::of_graph(&Graph::default(), true, 443).is_err());
}

#[test]
fn bounds_and_hostile_names_are_refused_with_a_sentence() {
    let site = Site::of_page(&page()).unwrap();
    let refused = |site: &Site| site.check().unwrap_err();
    let with = |path: &str| {
        let mut site = site.clone();
        path.clone_into(&mut site.files[1].path);
        site
    };
    for path in ["r/1", "/../x", "/r//x", "/r/.htaccess", "/a b", "/a\"", "/a\n", "/a/b/c/d"] {
        assert!(refused(&with(path)).contains("is no path"), "{path}");
    }
    assert!(refused(&with("/index.html")).contains("two files"));
    let names = |name: &str| Site { names: vec![name.to_owned()], ..site.clone() };
    for name in ["", "a b", "-a", "a..b", "a;b", "a\"", &"a".repeat(64)] {
        assert!(refused(&names(name)).contains("is no host name"), "{name}");
    }
    let mut large = site.clone();
    large.files[3].content = Content::Bytes(u64::MAX);
    assert!(refused(&large).contains("at most 256 MiB"));
    let mut slow = site.clone();
    slow.files[3].server_time_ns = 61_000_000_000;
    assert!(refused(&slow).contains("at most 60 s"));
    let mut odd = site;
    odd.files[2].content_type = "text/css\"\nX".to_owned();
    assert!(refused(&odd).contains("is no content type"));
    assert!(Site::default().check().is_err());
    assert!(Site::of_page(&MadePage { resources: 3_000, ..page() }).is_err());
    assert!(Site::of_page(&MadePage { kind: Kind::Other, ..page() }).is_err());
}
