"""Reports over what SealMQ logs: pure functions from DataFrame to DataFrame, programs round them.

They know the contracts in shared_spec/ (*.schema.json) and nothing else of SealMQ.
"""
