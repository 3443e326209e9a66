// SPDX-License-Identifier: Apache-2.0

package remote

import "context"

// Expand puts the devices of adb in the place of KindAll. The error says that there
// is none, or what is wrong with one.
func Expand(ctx context.Context, targets []Target) ([]Target, error) {
	var all []Target
	for _, t := range targets {
		if t.Kind != KindAll {
			all = append(all, t)
			continue
		}
		devices, err := listADB(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, devices...)
	}
	return all, nil
}
