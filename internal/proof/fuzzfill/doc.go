// Package fuzzfill fills values of any type at random, for the fuzz tests of the pure packages: whole pods with every field
// that the API has, sane or not.
//
// Contract: for tests. The same seed fills the same type with the same value. A pointer or list may stay nil at any depth.
package fuzzfill
