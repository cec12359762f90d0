package firewall

import (
	"context"
	"fmt"
)

// nftTable is a table of our own: nothing else is in it, so it can be made anew as a whole.
const nftTable = "ip wherry-firewall"

// nftRules replaces the table in one transaction. The first line makes it, so that there is one to delete.
const nftRules = `table ` + nftTable + `
delete table ` + nftTable + `
table ` + nftTable + ` {
	chain localnet {
		ip daddr 127.0.0.0/8 ip saddr != 127.0.0.0/8 ct state != { established, related } ct status & dnat != dnat drop
	}
	chain input {
		type filter hook input priority filter; policy accept;
		jump localnet
	}
	chain output {
		type filter hook output priority filter; policy accept;
		jump localnet
	}
}
`

// nft makes the table unless nft still prints what it printed after the table was made.
func (f *Firewall) nft(ctx context.Context) (changed bool, err error) {
	if f.listing != "" {
		if now, err := f.list(ctx); err == nil && now == f.listing {
			return false, nil
		}
	}
	if _, err := f.cfg.Run(ctx, nftRules, "nft", "-f", "-"); err != nil {
		return false, fmt.Errorf("make the table %s: %w", nftTable, err)
	}
	f.listing, err = f.list(ctx)
	return true, err
}

func (f *Firewall) list(ctx context.Context) (string, error) {
	out, err := f.cfg.Run(ctx, "", "nft", "list", "table", "ip", "wherry-firewall")
	if err != nil {
		return "", fmt.Errorf("list the table %s: %w", nftTable, err)
	}
	return out, nil
}
