// Package pki keeps the keys and certificates of a development control plane on disk.
//
// Contract: the certificate that Ensure returns is valid now. Ensure keeps an existing certificate if it parses, is signed by the CA beside
// it, has the right names and usage, and stays valid for at least Store.Margin. Otherwise (expired, half written, signed by an earlier CA)
// Ensure creates a new one. Files are replaced by rename, so that a crash leaves either the old or the new file. Only the owner of a
// private key can read it.
package pki
