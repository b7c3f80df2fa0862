//! Listings of open uploads, as a server in this process sees and answers them.

use super::*;

#[tokio::test]
async fn open_uploads_are_listed_page_by_page() {
    let server = Recorder::start(|seen| {
        let query = query(seen);
        let of = |name: &str| {
            let found = query.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str())
        };
        let page = match (of("key-marker"), of("upload-id-marker")) {
            (None, None) => {
                "<IsTruncated>true</IsTruncated><NextKeyMarker>tier/a &amp; b</NextKeyMarker>\
                 <NextUploadIdMarker>1+/=</NextUploadIdMarker>\
                 <Upload><Key>tier/a &amp; b</Key><UploadId>1+/=</UploadId></Upload>"
            }
            // A page that does not say where it ended.
            (Some("tier/a & b"), Some("1+/=")) => {
                "<IsTruncated>true</IsTruncated>\
                 <Upload><Key>tier//no key of ours</Key><UploadId>0</UploadId></Upload>\
                 <Upload><Key>tier/b.log</Key><UploadId>2</UploadId><Initiated>2026-01-01\
                 T00:00:00.000Z</Initiated><StorageClass>STANDARD</StorageClass></Upload>"
            }
            // As SeaweedFS does, which orders by upload.
            (Some("tier/b.log"), Some("2")) => {
                "<IsTruncated>true</IsTruncated><NextUploadIdMarker>3</NextUploadIdMarker>\
                 <Upload><Key>tier/b.log</Key><UploadId>3</UploadId></Upload>"
            }
            (None, Some("3")) => {
                "<IsTruncated>false</IsTruncated><NextKeyMarker></NextKeyMarker>\
                 <Upload><Key>tier/a.log</Key><UploadId>4</UploadId></Upload>"
            }
            other => panic!("{other:?}"),
        };
        let root = "ListMultipartUploadsResult";
        let name_space = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
        let body = format!("<?xml version=\"1.0\"?><{root} {name_space}>{page}</{root}>");
        answer(StatusCode::OK, &[], body)
    })
    .await;
    let client = open(s3(&server)).client;
    let list = ListUploads {
        target: target("tier"),
    };
    let uploads = client.list_uploads(list).await.unwrap().unwrap();
    let found: Vec<_> = uploads
        .iter()
        .map(|upload| (upload.key.as_ref(), &*upload.upload))
        .collect();
    assert_eq!(
        found,
        [
            ("tier/a & b", "1+/="),
            ("tier/b.log", "2"),
            ("tier/b.log", "3"),
            ("tier/a.log", "4")
        ]
    );
    let seen = server.seen();
    assert_eq!(seen.len(), 4);
    for seen in seen {
        assert_eq!((seen.method.as_str(), seen.uri.path()), ("GET", "/bucket"));
        assert!(seen.query().starts_with("uploads&"), "{}", seen.query());
        let query = query(&seen);
        assert!(
            query.contains(&("prefix".to_owned(), "tier/".to_owned())),
            "{query:?}"
        );
        assert!(
            seen.header("authorization")
                .unwrap()
                .starts_with("AWS4-HMAC-SHA256 ")
        );
    }
}

#[tokio::test]
async fn a_listing_of_uploads_that_cannot_be_right_is_refused() {
    const OPEN: &str = "<ListMultipartUploadsResult>";
    const CLOSE: &str = "</ListMultipartUploadsResult>";
    let more =
        format!("{OPEN}<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>{CLOSE}");
    let nowhere = format!("{OPEN}<IsTruncated>true</IsTruncated>{CLOSE}");
    let long = format!("{OPEN}{}{CLOSE}", " ".repeat(9 * 1024 * 1024));
    for (body, requests, why) in [
        (more, 2, "again and again"),
        (
            "<ListBucketResult></ListBucketResult>".to_owned(),
            1,
            "no list of uploads",
        ),
        ("no document".to_owned(), 1, "no list of uploads"),
        (
            format!("{OPEN}<Upload><Key>k</Key></Upload>{CLOSE}"),
            1,
            "no list of uploads",
        ),
        (long, 1, "longer than"),
    ] {
        let server = Recorder::start(move |_| answer(StatusCode::OK, &[], body.clone())).await;
        let list = ListUploads { target: target("") };
        let error = open(s3(&server))
            .client
            .list_uploads(list)
            .await
            .unwrap_err();
        assert!(
            matches!(error, RemoteStorageError::Corrupt { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(server.seen().len(), requests, "{why}");
        assert!(!server.seen()[0].query().contains("prefix"));
    }
    // Cut, but empty: there is nothing that could follow.
    let server = Recorder::start(move |_| answer(StatusCode::OK, &[], nowhere.clone())).await;
    let list = ListUploads { target: target("") };
    let uploads = open(s3(&server)).client.list_uploads(list).await.unwrap();
    assert_eq!(uploads, Some(Vec::new()));
}

#[tokio::test]
async fn a_listing_of_uploads_without_end_is_given_up() {
    let pages = AtomicUsize::new(0);
    let server = Recorder::start(move |_| {
        let page = pages.fetch_add(1, Ordering::Relaxed);
        let upload = |at| format!("<Upload><Key>{page}.{at}</Key><UploadId>u</UploadId></Upload>");
        let uploads = (0..1000).map(upload).collect::<Vec<_>>().concat();
        let body = format!(
            "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>{uploads}\
             </ListMultipartUploadsResult>"
        );
        answer(StatusCode::OK, &[], body)
    })
    .await;
    let list = ListUploads { target: target("") };
    let error = open(s3(&server))
        .client
        .list_uploads(list)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("lifecycle rule"), "{error}");
    assert_eq!(server.seen().len(), 101);
}
