// Package fuzzfill fills values of any type with random data, for the fuzz tests of the pure packages: whole pods with every
// field of the API, valid or not.
//
// Contract: for tests only. The same seed gives the same type the same value. A pointer or list may stay nil at any depth.
package fuzzfill
