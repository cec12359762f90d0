// Package console serves a web page that shows a node, or a fleet of nodes, as it changes.
//
// Contract:
//   - The page is plain HTML, CSS and JavaScript, compiled into the program. It loads nothing from elsewhere, and a strict
//     Content-Security-Policy says so to the browser. The page inserts everything that it receives as text, never as HTML.
//   - Each viewer has one stream (Server-Sent Events) of documents. A document is sent when it has changed, at most once a second;
//     a viewer that reads slowly gets fewer, newer documents. The number of viewers and the size of a document are bounded.
//   - Nothing is computed while nobody looks, and nothing runs: the requests of the viewers themselves compute, one at a time.
//     While they look, computing takes at most about a hundredth of one processor.
//   - A stream ends after half an hour. The browser opens another one, so the rights of its user are checked again.
//   - Everything is read only. A page of another site gets nothing: requests that a browser makes for such a page are refused.
//   - Login protects a console on a loopback port by a link that works once. It accepts requests only for its own host name, so
//     that a name of a stranger's domain that points to this machine does not help the stranger.
package console
