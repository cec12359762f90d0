// Package termsvg draws what a program has written to a terminal as an SVG, for the pictures of the documentation.
//
// Contract: SVG is a pure function. Its result has no script and no reference to another file. It knows what package screen writes: text,
// colours, the cursor's home, and erasures.
package termsvg
