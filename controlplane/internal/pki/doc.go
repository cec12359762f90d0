// Package pki keeps the keys and certificates of a development control plane on disk.
//
// Contract: the files that Ensure returns are valid now. An existing certificate is kept if it parses, is signed by the
// authority beside it, has the right names and usage, and stays valid for the margin. Otherwise (expired, half written, signed
// by an earlier authority) Ensure creates a new one. Files are replaced by rename, so a crash leaves either the old or the new
// file. Only its owner can read a private key.
package pki
