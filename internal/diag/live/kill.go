// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"slices"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Kill aborts a connection, or only the subflow with the given ID.
func Kill(ctx context.Context, conn *stackconn.Conn, c *Connection, subflow string) error {
	sockets := c.Carriers()
	if subflow != "" {
		sockets = slices.DeleteFunc(sockets, func(s sockdiag.Socket) bool { return id(s) != subflow })
	}
	return sockdiag.Destroy(ctx, conn, sockets)
}
