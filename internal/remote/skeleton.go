// SPDX-License-Identifier: Apache-2.0

package remote

import "context"

func openADB(_ context.Context, t Target) (Device, error) {
	return nil, broken(t.String(), "not there yet")
}

func listADB(context.Context) ([]Target, error) { return nil, broken(KindAll, "not there yet") }
