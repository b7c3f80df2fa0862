//! Bodies whose every piece is a sign of life.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpRequestBody};

use super::http_error;
use crate::ops::Activity;

/// Longest piece of a request's body. The client asks for the next one when the network has taken
/// the last ones, so short pieces are frequent signs of life; they are slices, not copies.
pub(super) const MAX_PIECE_BYTES: usize = 64 * 1024;

/// The body of a request, in pieces. Its length is known exactly.
pub(super) struct Pieces {
    body: HttpRequestBody,
    begun: Bytes,
    left: u64,
    activity: Option<Activity>,
}

impl Pieces {
    pub(super) fn new(body: HttpRequestBody, activity: Option<Activity>) -> Self {
        Self {
            left: body.content_length() as u64,
            body,
            begun: Bytes::new(),
            activity,
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        while self.begun.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.begun = data;
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let length = self.begun.len().min(MAX_PIECE_BYTES);
        let piece = self.begun.split_to(length);
        self.left -= length as u64;
        if let Some(activity) = &self.activity {
            activity.mark();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The body of an answer.
///
/// It does not tell its length ahead: `object_store` would allocate what a server merely announces.
pub(super) struct Received {
    body: reqwest::Body,
    activity: Option<Activity>,
}

impl Received {
    pub(super) fn new(body: reqwest::Body, activity: Option<Activity>) -> Self {
        Self { body, activity }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(Ok(_)), Some(activity)) = (&frame, &self.activity) {
            activity.mark();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(http_error)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
