"""Tutorial 05, second part: message matching. docs/tutorials/05-kernels.md explains it."""

from polypath.matching import ANY_SOURCE, ANY_TAG, NO_MATCH, envelopes, match


def main() -> None:
    # Three messages: tag 1, 2, 1 of rank 3. Three receives: any tag, tag 1 of any rank, tag 7.
    messages = envelopes([1, 2, 1], [3, 3, 3])
    receives = envelopes([ANY_TAG, 1, 7], [3, ANY_SOURCE, 3])

    # MPI's rule: each message takes the first receive that accepts it.
    matched = match(messages, receives)
    print("message of each receive:", matched.matched_message.tolist())
    print(f"{matched.outcome.matches} matches, {NO_MATCH} stands for no message")
    assert matched.matched_message.tolist() == [0, 2, NO_MATCH]


if __name__ == "__main__":
    main()
