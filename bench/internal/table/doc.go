// Package table turns samples into the benchmark's table: medians with their spread, and ratios between two arms.
package table
