// Package criproxy forwards the calls of CRI clients to a real container runtime, and makes some of them slow, fail, hang or lose their
// answers. So people see how their node behaves when its runtime misbehaves.
//
//	p, err := criproxy.New(criproxy.Config{Dial: dial, Log: log})
//	number, err := p.Inject(criproxy.Fault{Method: "PullImage", Effect: criproxy.Slow, Delay: 30 * time.Second})
//	err = p.Serve(ctx, listener)
//
// A call passes through as bytes: the proxy decodes no message, so methods and fields that it does not know are forwarded unchanged, and it
// keeps no content of a message. Deadlines, cancellation, metadata, trailers and details of a status pass through too.
//
// Contract: New does no IO and starts nothing. Serve blocks until everything that it started has ended; it is called once. The other
// methods may be called concurrently. The number of calls in flight, of faults and of counted methods is bounded, and so is the size of a
// message. A runtime that does not answer makes calls fail, and never the proxy.
//
// Invariants:
//
//   - A call is affected by the first fault, in the order of Inject, whose method matches and whose chance hits it.
//   - For a fault with a chance, its seed, the method and the number of the call decide. So the same calls in the same order have the same
//     outcome.
//   - No call waits for a fault that has ended, except for a delay that had begun.
package criproxy
