package aws

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// maxPages is of every listing: there we stop believing that it ends.
const maxPages = 1000

// pager is a paginator of the SDK. O is the options of its service.
type pager[P, O any] interface {
	HasMorePages() bool
	NextPage(ctx context.Context, options ...func(O)) (P, error)
}

// pagesOf returns the pages of a listing, which must come to an end, or the error
// that ended it before. next returns a page's token of the next one.
func pagesOf[P, O any](ctx context.Context, pages pager[P, O], next func(P) *string) iter.Seq2[P, error] {
	return func(yield func(P, error) bool) {
		seen := map[string]bool{}
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err == nil {
				err = checkToken(seen, aws.ToString(next(page)))
			}
			if !yield(page, err) || err != nil {
				return
			}
		}
	}
}

// checkToken says whether there is something wrong with the token of the next page.
func checkToken(seen map[string]bool, token string) error {
	switch {
	case token == "":
		return nil
	case seen[token]:
		return errors.New("a page leads back to itself")
	}
	seen[token] = true
	if len(seen) > maxPages {
		return fmt.Errorf("more than %d pages", maxPages)
	}
	return nil
}
