// Package a has used and unused declarations. The test of the command unused expects that it lists the unused ones.
package a

import "fmt"

const Used, Unused = 1, 2

type Config struct {
	Read    int
	Written int
	Counted int
	Tagged  int `json:"tagged"`
	inner   whole
	other   compared
}

type whole struct{ printed int }

type compared struct{ key int }

type Shape interface{ Area() int }

type Square struct{ side int }

func (s Square) Area() int      { return s.side * s.side }
func (s Square) Perimeter() int { return 4 * s.side }

func Use(c *Config) bool {
	c.Written = c.Read
	c.Counted++
	fmt.Println(c.inner)
	return c.other == compared{key: Used}
}

func Recursive(n int) int { return Recursive(n - 1) }

type Generic[T any] struct{ held, lost T }

func (g *Generic[T]) Get() T { g.lost = g.held; return g.held }
