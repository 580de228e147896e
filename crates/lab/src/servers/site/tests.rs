use tcptoll_core::page::resource::Kind;
use tcptoll_core::page::site::{Content, MadePage};

use super::*;

fn page(page_time_ns: u64) -> Site {
    let page = MadePage {
        resources: 2,
        kind: Kind::Stylesheet,
        resource_bytes: 100,
        page_bytes: 1_000,
        page_time_ns,
        resource_time_ns: 0,
        shards: Vec::new(),
        tls: false,
        port: 80,
    };
    Site::of_page(&page).unwrap()
}

#[test]
fn files_are_written_below_the_run_folder_with_a_type_each() {
    let folder = RunFolder::temporary().unwrap();
    let laid = lay(&page(0), false, None, &folder).unwrap();
    assert!(laid.root.starts_with(folder.path()));
    assert_eq!(std::fs::read(laid.root.join("r/2.css")).unwrap().len(), 100);
    let types = [("html", "text/html"), ("css", "text/css")];
    assert_eq!(laid.types, types.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
    assert!(laid.scripts.is_empty() && laid.php.is_none());
}

#[test]
fn http2_without_tls_and_two_types_of_one_extension_are_refused() {
    let folder = RunFolder::temporary().unwrap();
    let site = Site { http2: true, ..page(0) };
    assert!(lay(&site, false, None, &folder).err().unwrap().contains("needs TLS"));
    let mut odd = page(0);
    odd.files[2].content_type = "text/plain".to_owned();
    assert!(lay(&odd, false, None, &folder).err().unwrap().contains("one type"));
}

#[test]
fn a_folder_that_is_none_or_has_an_odd_name_is_refused() {
    let folder = RunFolder::temporary().unwrap();
    let served = |path: &Path| {
        let path = Some(path.to_str().unwrap().to_owned());
        lay(&Site { folder: path, ..Site::default() }, false, None, &folder)
    };
    assert_eq!(served(folder.path()).unwrap().root, folder.path().canonicalize().unwrap());
    assert!(served(Path::new("/nonexistent")).err().unwrap().contains("/nonexistent"));
    assert!(served(Path::new("/")).err().unwrap().contains("whole file system"));
    let odd = folder.file("a\"b");
    std::fs::create_dir(&odd).unwrap();
    assert!(served(&odd).err().unwrap().contains("characters"));
    let file = folder.write("file", b"x").unwrap();
    assert!(served(&file).err().unwrap().contains("not a folder"));
}

#[test]
fn a_script_waits_whole_microseconds_and_sends_the_files_own_length() {
    let file = File {
        path: "/index.html".to_owned(),
        content: Content::Bytes(7),
        content_type: "text/html".to_owned(),
        server_time_ns: 1_500_001,
    };
    let text = script(&file, Path::new("/run/site/index.html"), 0);
    assert!(text.contains("usleep(1501);") && text.contains("Content-Length: 7"), "{text}");
}
