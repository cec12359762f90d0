package main

import "example.org/m/internal/a"

func main() {
	var s a.Shape = a.Square{}
	var g a.Generic[int]
	println(s.Area(), g.Get(), a.Use(&a.Config{Written: 1, Tagged: 2}))
}
