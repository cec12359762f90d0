package firewall

import (
	"context"
	"fmt"
)

// nftTable is our own table. It contains nothing else, so it can be replaced as a whole.
const nftTable = "ip wherry-firewall"

// nftRules replaces the table in one transaction. The first line creates the table if it is missing, so that delete succeeds.
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

// nft creates the table again unless nft prints the same listing as after the last creation.
func (f *Firewall) nft(ctx context.Context) (changed bool, err error) {
	if f.listing != "" {
		if now, err := f.list(ctx); err == nil && now == f.listing {
			return false, nil
		}
	}
	if _, err := f.cfg.Run(ctx, nftRules, "nft", "-f", "-"); err != nil {
		return false, fmt.Errorf("create the table %s: %w", nftTable, err)
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
