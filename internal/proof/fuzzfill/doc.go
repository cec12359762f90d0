// Package fuzzfill fills values of any type with random data, for the fuzz tests of the pure packages in internal/core: it makes whole
// pods with every field of the API, valid or not.
//
// Contract: only tests use it. For one type, the same seed always gives the same value. Pointers and lists may be nil at any depth.
package fuzzfill
