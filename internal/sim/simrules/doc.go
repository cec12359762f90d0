// Package simrules says as data what simulated containers and images do: how containers end, when they are ready, what they log and answer, which
// resources they use, and how large images are and how fast they are pulled.
//
//	rules, err := simrules.Parse("rules.yaml", data)
//	do := rules.Find(simrules.Subject{Pod: "web-1", Image: "registry.example/app:1"}) // nil: no rule matches
//
// Contract: it does no IO, and reads no time and no random source: a value that varies follows from a seed. A *Do must not be modified after
// Parse, because containers share it.
package simrules
