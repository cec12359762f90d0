// Package table turns samples into the benchmark's table. It computes medians with their spread, and ratios between two arms (two of the
// agents and baselines that the benchmark compares).
package table
