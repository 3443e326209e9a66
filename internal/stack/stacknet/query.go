// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Links lists the stack's interfaces.
func Links(ctx context.Context, c *stackconn.Conn) ([]LinkState, error) {
	r, err := openRoute(ctx, c)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.links()
}

// Addresses lists the addresses of the stack's interfaces.
func Addresses(ctx context.Context, c *stackconn.Conn) ([]Address, error) {
	r, err := openRoute(ctx, c)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.addresses()
}
