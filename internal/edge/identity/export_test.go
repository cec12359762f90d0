package identity

import "context"

// Bootstrap gets the node's first certificate if it needs one, as the Run of a Joining does before it renews it.
func Bootstrap(ctx context.Context, cfg BootstrapConfig) error {
	b, err := newBootstrap(cfg)
	if b == nil || err != nil {
		return err
	}
	return b.run(ctx)
}
