// SPDX-License-Identifier: Apache-2.0

//go:build nogateway

package gateway

import (
	"context"
	"log/slog"
	"os"

	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/pkg/config"
)

// Available reports whether this lklrun includes the gateway.
const Available = false

// Gateway is a running gateway. This build has none.
type Gateway struct{}

// Start returns ErrLeftOut.
func Start(context.Context, Config, *slog.Logger, func(string)) (*Gateway, *os.File, error) {
	return nil, nil, ErrLeftOut
}

// Plain returns ErrLeftOut.
func (*Gateway) Plain() (*os.File, error) { return nil, ErrLeftOut }

// PID returns 0.
func (*Gateway) PID() int { return 0 }

// CheckKernel returns ErrLeftOut.
func CheckKernel() error { return ErrLeftOut }

// Counts returns no counters.
func (*Gateway) Counts() map[string]uint64 { return nil }

// Close does nothing.
func (*Gateway) Close() {}

// Egress returns nil.
func (*Gateway) Egress() *egress.Account { return nil }

// NameProcesses does nothing.
func (*Gateway) NameProcesses(egress.Finder) {}

// ChangeEgress returns ErrLeftOut.
func (*Gateway) ChangeEgress(_, _ []config.Allow) error { return ErrLeftOut }

// EgressRules returns no rules.
func (*Gateway) EgressRules(int) egress.Policy { return egress.Policy{} }
