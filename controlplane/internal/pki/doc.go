// Package pki keeps the keys and certificates of a development control plane on disk.
//
// Contract: Ensure returns files that are usable now. What lies in the directory is kept as long as it parses, is
// signed by the authority beside it, has the wanted names and use, and stays valid for the margin; anything else
// (expired, half-written, made by an earlier authority) is made anew. Files are replaced by rename, so that a crash
// leaves either the old or the new one. A private key is readable by its owner only.
package pki
