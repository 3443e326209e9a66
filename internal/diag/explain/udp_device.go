// SPDX-License-Identifier: Apache-2.0

//go:build device

package explain

import (
	"context"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// The lklrun of a bundle does not observe UDP. lklctl does, on the user's machine.
type listener struct{}

func listen(context.Context, *stackconn.Conn, string) (*listener, error) { return nil, nil }

func (*listener) close() {}

func (*listener) add(context.Context, *Reading) error { return nil }

func (*listener) routes(context.Context, *instance.Info, *Reading) error { return nil }

func (*Judge) heard(*Reading) {}

func (*Judge) open() bool { return false }

func (*Judge) unanswered() []Finding { return nil }
